-- Claim runs, those of a list that can still be had.
--
-- KEYS     token, runnable, held, and the states of the runs
-- ARGV[2]  msgpack: ids (in the order in which they should be had), owner, lease (microseconds),
--          limit, workflows (a list, or nil for all), due (whether only runs whose time has come),
--          code (the hash of the claimer's code: runs that it has rejected are left, unless parked)
-- Returns  {"want", keys} or {"done", now, {{id, record as HGETALL gives it}, …}}

-- include: head
-- include: runs

local wish = cmsgpack.unpack(ARGV[2])
local is_known = nil
if wish.workflows then
    is_known = {}
    for _, name in ipairs(wish.workflows) do
        is_known[name] = true
    end
end

local function was_rejected(run)
    if not wish.code then
        return false
    end
    local found = call('HMGET', at(of_run(run.id, 'state')), 'rejected_by', 'wait_kind')
    if not found[1] or found[2] == 'mismatch' then
        return false
    end
    return string.find(found[1], wish.code, 1, true) ~= nil
end

local function can_be_had(run)
    if not run or is_ended(run) or run.quarantine then
        return false
    end
    if is_known and not is_known[run.workflow] then
        return false
    end
    if run.owner and run['until'] and tonumber(run['until']) > now then
        return false
    end
    if wish.due and not (run.runnable and tonumber(run.runnable) <= now) then
        return false
    end
    return not was_rejected(run)
end

need('token')
need_shelves()
for _, id in ipairs(wish.ids) do
    find(id)
end
if #missing > 0 then
    return { 'want', missing }
end
local claimed = {}
for _, id in ipairs(wish.ids) do
    local run = find(id)
    if #claimed < wish.limit and can_be_had(run) then
        unshelve(run)
        set(run, 'owner', wish.owner)
        set(run, 'token', next_token())
        set(run, 'until', int(now + wish.lease))
        shelve(run)
        claimed[#claimed + 1] = id
    end
end
flush()
for n, id in ipairs(claimed) do
    claimed[n] = { id, call('HGETALL', at(of_run(id, 'state'))) }
end
return { 'done', now_text, claimed }

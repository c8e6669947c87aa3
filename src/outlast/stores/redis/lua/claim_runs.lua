-- Claim the runs of a list that are still claimable.
--
-- KEYS     token, runnable, held, and the states of the runs
-- ARGV[2]  msgpack: ids (in the order of preference), owner, lease (microseconds), limit, workflows (a list, or
--          nil for all), due (whether only due runs), code (the hash of the claimer's code: runs that it has
--          rejected are skipped, unless parked)
-- Returns  {"want", keys} or {"done", now, {{id, record as HGETALL gives it}, …}}

-- include: prelude
-- include: runs

local args = cmsgpack.unpack(ARGV[2])
local is_known = nil
if args.workflows then
    is_known = {}
    for _, name in ipairs(args.workflows) do
        is_known[name] = true
    end
end

local function was_rejected(run)
    if not args.code then
        return false
    end
    local found = call('HMGET', at(of_run(run.id, 'state')), 'rejected_by', 'wait_kind')
    if not found[1] or found[2] == 'mismatch' or found[2] == 'bug' then
        return false
    end
    return string.find(found[1], args.code, 1, true) ~= nil
end

local function is_claimable(run)
    if not run or is_ended(run) or run.quarantine then
        return false
    end
    if is_known and not is_known[run.workflow] then
        return false
    end
    if run.owner and run['until'] and tonumber(run['until']) > now then
        return false
    end
    if args.due and not (run.runnable and tonumber(run.runnable) <= now) then
        return false
    end
    return not was_rejected(run)
end

need('token')
need_claim_indexes()
for _, id in ipairs(args.ids) do
    find(id)
end
if #missing > 0 then
    return { 'want', missing }
end
local claimed = {}
for _, id in ipairs(args.ids) do
    local run = find(id)
    if #claimed < args.limit and is_claimable(run) then
        unindex_claim(run)
        set(run, 'owner', args.owner)
        set(run, 'token', next_token())
        set(run, 'until', int(now + args.lease))
        index_claim(run)
        claimed[#claimed + 1] = id
    end
end
flush()
for n, id in ipairs(claimed) do
    claimed[n] = { id, call('HGETALL', at(of_run(id, 'state'))) }
end
return { 'done', now_text, claimed }

-- Take ready tasks of queues without policy and keys: smallest priority first, then longest ready, then by
-- arrival. Expired leases are reclaimed; a task without an attempt left is buried.
--
-- ARGV[2]  msgpack: queues, owner, lease (microseconds), limit, attempts (the most allowed)
-- Returns  {"want", keys}, {"policy", {scope, …}} for scopes with a policy or keys (scan_fair_queue.lua,
--          lease_tasks.lua), or
--          {"done", {{claim, state (msgpack), bytes}, …}, "1" if there may be more}

-- include: prelude
-- include: runs
-- include: tasks

local args = cmsgpack.unpack(ARGV[2])
need('token')
need_tasks()
if #missing > 0 then
    return { 'want', missing }
end
local scopes, is_known = {}, {}
for _, queue in ipairs(args.queues) do
    local frame, scope = framed(queue), scope_of(queue)
    reclaim_expired(frame)
    if not is_known[scope] and (call('HEXISTS', at('policy:homes'), scope) == 1 or call('ZRANGEBYLEX',
        at('task:keyed'), '[' .. frame, '(' .. frame .. '\255', 'LIMIT', 0, 1)[1]) then
        is_known[scope] = true
        scopes[#scopes + 1] = scope
    end
end
if #scopes > 0 then
    return { 'policy', scopes }
end

local firsts = {}  -- of each queue the first ready task, or false

local function read_first(n)
    firsts[n] = ready_in(at('task:free'), framed(args.queues[n]), 1)[1] or false
end

for n = 1, #args.queues do
    read_first(n)
end

-- The queue whose first task comes first.
local function first_queue()
    local best
    for n, place in ipairs(firsts) do
        if place and (not best or place < firsts[best]) then
            best = n
        end
    end
    return best
end

local taken = {}
while #taken < args.limit do
    local n = first_queue()
    if not n then
        break
    end
    local name = sub(firsts[n], 64)
    local task = find_task(name)
    if is_being_deleted(task.run, false) then
        return #taken > 0 and { 'done', taken, '1' } or { 'want', missing }
    elseif tonumber(task.attempt) < args.attempts then
        task.attempt = int(tonumber(task.attempt) + 1)
        lease_task(name, task, args.owner, int(now + args.lease))
        taken[#taken + 1] = { claim_of(task), cmsgpack.pack(task), call('HGET', at('task:data'), name) }
    elseif task.run == '' or need(of_run(task.run, 'tasks')) then
        bury_task(name, task, 'no success in ' .. task.attempt .. ' attempts')
    elseif #taken > 0 then
        return { 'done', taken, '1' }
    else
        return { 'want', missing }  -- what was returned or buried so far was due
    end
    read_first(n)
end
return { 'done', taken, '0' }

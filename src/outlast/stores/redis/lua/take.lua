-- Hand out ready tasks of queues that have neither rules nor lines: smallest priority first, then ready
-- longest, then first come. A lease that ran out puts its task back; too many attempts bury it.
--
-- ARGV[2]  msgpack: queues, owner, lease (microseconds), limit, attempts (the most allowed)
-- Returns  {"want", keys}, {"policy", {scope, …}} where turns and rules are to be looked at (look.lua,
--          begin.lua), or
--          {"done", {{claim, state (msgpack), bytes}, …}, "1" if there may be more}

-- include: head
-- include: runs
-- include: tasks

local wish = cmsgpack.unpack(ARGV[2])
need('token')
need_tasks()
if #missing > 0 then
    return { 'want', missing }
end
local scopes, is_known = {}, {}
for _, queue in ipairs(wish.queues) do
    local frame, scope = framed(queue), scope_of(queue)
    take_back(frame)
    if not is_known[scope] and (call('HEXISTS', at('policy:homes'), scope) == 1 or call('ZRANGEBYLEX',
        at('task:lined'), '[' .. frame, '(' .. frame .. '\255', 'LIMIT', 0, 1)[1]) then
        is_known[scope] = true
        scopes[#scopes + 1] = scope
    end
end
if #scopes > 0 then
    return { 'policy', scopes }
end

local firsts = {}  -- of each queue the first place that is ready, or false

local function look_again(n)
    firsts[n] = ready_in(at('task:free'), framed(wish.queues[n]), 1)[1] or false
end

for n = 1, #wish.queues do
    look_again(n)
end

-- The queue whose first task comes first.
local function foremost()
    local best
    for n, place in ipairs(firsts) do
        if place and (not best or place < firsts[best]) then
            best = n
        end
    end
    return best
end

local taken = {}
while #taken < wish.limit do
    local n = foremost()
    if not n then
        break
    end
    local name = sub(firsts[n], 64)
    local task = find_task(name)
    if is_going(task.run, false) then
        return #taken > 0 and { 'done', taken, '1' } or { 'want', missing }
    elseif tonumber(task.attempt) < wish.attempts then
        task.attempt = int(tonumber(task.attempt) + 1)
        lease_task(name, task, wish.owner, int(now + wish.lease))
        taken[#taken + 1] = { claim_of(task), cmsgpack.pack(task), call('HGET', at('task:data'), name) }
    elseif task.run == '' or need(of_run(task.run, 'tasks')) then
        bury_task(name, task, 'no success in ' .. task.attempt .. ' attempts')
    elseif #taken > 0 then
        return { 'done', taken, '1' }
    else
        return { 'want', missing }  -- what was moved or buried until here was due all the same
    end
    look_again(n)
end
return { 'done', taken, '0' }

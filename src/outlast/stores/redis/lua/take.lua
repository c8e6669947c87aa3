-- Hand out the next ready tasks of some queues: smallest priority first, then ready longest, then
-- first come. A lease that ran out puts its task back; too many attempts bury it.
--
-- ARGV[2]  msgpack: queues, owner, lease (microseconds), attempts (the most that are allowed), limit
-- Returns  {"want", keys}, or {"done", {{claim, state (msgpack), bytes}, …}}

-- include: head
-- include: runs
-- include: tasks

local wish = cmsgpack.unpack(ARGV[2])
need('token')
need_tasks()
if #missing > 0 then
    return { 'want', missing }
end

-- Who held it may still finish it while nobody else has it: owner and token stay.
local function put_back(frame)
    local expired = call('ZRANGEBYLEX', at('task:held'), '[' .. frame,
        '[' .. frame .. sortable(now_text) .. '\255')
    for _, member in ipairs(expired) do
        local name = sub(member, #frame + 22)
        call('ZREM', at('task:held'), member)
        call('ZADD', at('task:free'), '0', task_place(name, find_task(name)))
    end
end

-- The first task that is ready, as its place in the order and its name: of each priority the one
-- that is ready first, if it is.
local function first(frame)
    local level = '[' .. frame
    while true do
        local member = call('ZRANGEBYLEX', at('task:free'), level, '(' .. frame .. '\255',
            'LIMIT', 0, 1)[1]
        if not member then
            return nil
        end
        local ready = sub(member, #frame + 22, #frame + 42)
        if ready <= sortable(now_text) then
            return { sub(member, #frame + 1, #frame + 63), sub(member, #frame + 64) }
        end
        level = '(' .. sub(member, 1, #frame + 21) .. '\255'
    end
end

local frames, heads = {}, {}
for i, queue in ipairs(wish.queues) do
    frames[i] = framed(queue)
    put_back(frames[i])
    heads[i] = first(frames[i]) or false
end

-- The queue whose first task comes first.
local function foremost()
    local best
    for i, head in ipairs(heads) do
        if head and (not best or head[1] < heads[best][1]) then
            best = i
        end
    end
    return best
end

local taken = {}
while #taken < wish.limit do
    local i = foremost()
    if not i then
        break
    end
    local name = heads[i][2]
    local task = find_task(name)
    if tonumber(task.attempt) < wish.attempts then
        task.attempt = int(tonumber(task.attempt) + 1)
        lease_task(name, task, wish.owner, wish.lease)
        taken[#taken + 1] =
            { claim_of(task), cmsgpack.pack(task), call('HGET', at('task:data'), name) }
    elseif task.run ~= '' and not need(of_run(task.run, 'tasks')) then
        if #taken > 0 then
            break  -- the next call buries it
        end
        return { 'want', missing }  -- what was moved or buried until here was due all the same
    else
        bury_task(name, task, 'no success in ' .. task.attempt .. ' attempts')
    end
    heads[i] = first(frames[i]) or false
end
return { 'done', taken }

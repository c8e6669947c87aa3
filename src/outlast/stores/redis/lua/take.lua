-- Hand out the next ready task of a queue: smallest priority first, then ready longest, then first
-- come. A lease that ran out puts its task back; too many attempts bury it.
--
-- ARGV[2]  msgpack: queue, owner, lease (microseconds), attempts (the most that are allowed)
-- Returns  {"want", keys}, {"none"}, or {"done", claim, state (msgpack), bytes}

-- include: head
-- include: runs
-- include: tasks

local wish = cmsgpack.unpack(ARGV[2])
need('token')
need_tasks()
if #missing > 0 then
    return { 'want', missing }
end
local frame = framed(wish.queue)

-- Who held it may still finish it while nobody else has it: owner and token stay.
local expired = call('ZRANGEBYLEX', at('task:held'), '[' .. frame,
    '[' .. frame .. sortable(now_text) .. '\255')
for _, member in ipairs(expired) do
    local name = sub(member, #frame + 22)
    call('ZREM', at('task:held'), member)
    call('ZADD', at('task:free'), '0', task_place(name, find_task(name)))
end

-- The first task that is ready: of each priority the one that is ready first, if it is.
local function first()
    local level = '[' .. frame
    while true do
        local member = call('ZRANGEBYLEX', at('task:free'), level, '(' .. frame .. '\255',
            'LIMIT', 0, 1)[1]
        if not member then
            return nil
        end
        local ready = sub(member, #frame + 22, #frame + 42)
        if ready <= sortable(now_text) then
            return sub(member, #frame + 64)
        end
        level = '(' .. sub(member, 1, #frame + 21) .. '\255'
    end
end

while true do
    local name = first()
    if not name then
        return { 'none' }
    end
    local task = find_task(name)
    if tonumber(task.attempt) < wish.attempts then
        task.attempt = int(tonumber(task.attempt) + 1)
        lease_task(name, task, wish.owner, wish.lease)
        return { 'done', claim_of(task), cmsgpack.pack(task), call('HGET', at('task:data'), name) }
    end
    if task.run ~= '' and not need(of_run(task.run, 'tasks')) then
        return { 'want', missing }  -- what was moved or buried until here was due all the same
    end
    bury_task(name, task, 'no success in ' .. task.attempt .. ' attempts')
end

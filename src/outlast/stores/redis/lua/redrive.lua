-- Make dead tasks of a queue ready again, or delete them.
--
-- ARGV[2]  msgpack: queue, ids (a list, or nil for all), revive
-- Returns  {"want", keys} or {"done", how many}

-- include: prelude
-- include: runs
-- include: tasks

local args = cmsgpack.unpack(ARGV[2])
local wanted = nil
if args.ids then
    wanted = {}
    for _, id in ipairs(args.ids) do
        wanted[id] = true
    end
end
need_tasks()
if #missing > 0 then
    return { 'want', missing }
end
local frame, chosen = framed(args.queue), {}
for _, member in ipairs(call('ZRANGEBYLEX', at('dead:order'), '[' .. frame,
    '(' .. frame .. '\255')) do
    local size = tonumber(sub(member, #frame + 22, #frame + 29), 16)
    local name = sub(member, #frame + 30 + size)
    local task = find_dead(name)
    if not wanted or wanted[task.id] then
        chosen[#chosen + 1] = { name, task }
        if task.run ~= '' then
            need(of_run(task.run, 'tasks'))
        end
    end
end
if #missing > 0 then
    return { 'want', missing }
end
for _, pair in ipairs(chosen) do
    local name, task = pair[1], pair[2]
    local bytes = call('HGET', at('dead:data'), name)
    remove_dead(name, task)
    if args.revive then
        task.reason, task.died, task.attempt, task.ready = nil, nil, '0', now_text
        add_task(name, task, bytes)
    end
end
return { 'done', int(#chosen) }

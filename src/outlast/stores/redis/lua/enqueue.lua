-- Add tasks to a queue.
--
-- ARGV[2]  msgpack list of tasks: queue, run, id, uid, priority, ready (a time, text, or nil),
--          attempt, bytes
-- ARGV[3]  delay in microseconds
-- Returns  {"want", keys} or {"done", how many were new}

-- include: prelude
-- include: runs
-- include: tasks

local tasks = cmsgpack.unpack(ARGV[2])
need_tasks()
for _, task in ipairs(tasks) do
    if task.run ~= '' then
        need(of_run(task.run, 'tasks'))
    end
end
if #missing > 0 then
    return { 'want', missing }
end
local later, added = now + tonumber(ARGV[3]), 0
for _, task in ipairs(tasks) do
    local bytes, ready = task.bytes, task.ready
    task.bytes = nil
    task.ready = ready and tonumber(ready) > later and ready or int(later)
    task.enqueued = now_text
    if add_task(task_name(task.queue, task.run, task.id), task, bytes) then
        added = added + 1
    end
end
return { 'done', int(added) }

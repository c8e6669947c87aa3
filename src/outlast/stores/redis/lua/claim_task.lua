-- Claim one task of a run, in whatever queue it is.
--
-- ARGV[2]  msgpack: run, id, owner, lease (microseconds, nil for good)
-- Returns  {"want", keys}, {"none"} or {"done", claim}, a claim being
--          {owner, token, now, until or "", run, uid, id, queue}

-- include: head
-- include: runs
-- include: tasks

local wish = cmsgpack.unpack(ARGV[2])
need('token')
need(of_run(wish.run, 'tasks'))
need_tasks()
if #missing > 0 then
    return { 'want', missing }
end
local found, found_name
for _, name in ipairs(call('SMEMBERS', at(of_run(wish.run, 'tasks')))) do
    local task = find_task(name)
    if task and task.id == wish.id and is_available(task)
        and (not found or tonumber(task.order) < tonumber(found.order)) then
        found, found_name = task, name
    end
end
if not found then
    return { 'none' }
end
lease_task(found_name, found, wish.owner, wish.lease)
return { 'done', claim_of(found) }

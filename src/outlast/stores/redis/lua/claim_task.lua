-- Claim one task of a run, in whatever queue it is.
--
-- ARGV[2]  msgpack: run, id, owner, lease (microseconds, nil for good; never for good under a slot
--          elsewhere), ticket; and if there is such a slot: name (of its task), slot_ends
-- Returns  {"want", keys}, {"none"}, {"slot", what slots.lua has to force} or {"done", claim}, a claim being
--          {owner, token, now, until or "", run, uid, id, queue}

-- include: head
-- include: runs
-- include: tasks

local wish = cmsgpack.unpack(ARGV[2])
need('token')
need(of_run(wish.run, 'tasks'))
need_tasks()
is_going(wish.run, false)
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
local home, ends = home_of(found.queue), wish.lease and lease_end(wish.lease, wish.slot_ends) or nil
if home and is_here(home) then
    found.ticket = wish.ticket
    if not force_slot(found_name, slot_of(found, ends)) then
        return { 'none' }
    end
elseif home and wish.name ~= found_name then
    return { 'slot', wanted_slot(found_name, found, home, wish.ticket) }
end
lease_task(found_name, found, wish.owner, ends, home and wish.ticket, home)
return { 'done', claim_of(found) }

-- Claim one task of a run, in any queue.
--
-- ARGV[2]  msgpack: run, id, owner, lease (microseconds, nil for no expiry; never nil with a slot in another
--          partition), ticket; and with such a slot: name (of its task), slot_ends
-- Returns  {"want", keys}, {"none"}, {"slot", arguments of update_slots.lua} or {"done", claim}, a claim being
--          {owner, token, now, until or "", run, uid, id, queue}

-- include: prelude
-- include: runs
-- include: tasks

local args = cmsgpack.unpack(ARGV[2])
need('token')
need(of_run(args.run, 'tasks'))
need_tasks()
is_being_deleted(args.run, false)
if #missing > 0 then
    return { 'want', missing }
end
local found, found_name
for _, name in ipairs(call('SMEMBERS', at(of_run(args.run, 'tasks')))) do
    local task = find_task(name)
    if task and task.id == args.id and is_available(task)
        and (not found or tonumber(task.order) < tonumber(found.order)) then
        found, found_name = task, name
    end
end
if not found then
    return { 'none' }
end
local home, ends = home_of(found.queue), args.lease and lease_end(args.lease, args.slot_ends) or nil
if home and is_here(home) then
    found.ticket = args.ticket
    if not force_slot(found_name, slot_of(found, ends)) then
        return { 'none' }
    end
elseif home and args.name ~= found_name then
    return { 'slot', wanted_slot(found_name, found, home, args.ticket) }
end
lease_task(found_name, found, args.owner, ends, home and args.ticket, home)
return { 'done', claim_of(found) }

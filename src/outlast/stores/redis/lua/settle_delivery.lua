-- End or change the delivery of a task: ack, nack, extend.
--
-- ARGV[2]  msgpack: claim (queue, run, id, token), verb (ack, nack, extend), and for nack: requeue,
--          drop, delay (microseconds), reason, attempts; for extend: lease (microseconds)
--          and slot_ends (of a slot in another partition, if it was extended)
-- Returns  {"want", keys}, {"notfound"}, {"fenced", token}, {"slot", arguments of update_slots.lua}, or
--          {"done", until or "", whether a slot is to be released}

-- include: prelude
-- include: runs
-- include: tasks

local args = cmsgpack.unpack(ARGV[2])
need_tasks()
if args.claim.run ~= '' then
    need(of_run(args.claim.run, 'tasks'))
end
if #missing > 0 then
    return { 'want', missing }
end
local held, task, name = held_task(args.claim)
if not task then
    return { 'notfound' }
end
if not held then
    return { 'fenced', task.token }
end
if args.verb == 'ack' then
    remove_task(name, task)
elseif args.verb == 'extend' then
    local answer = renew_task(name, task, args.lease, args.slot_ends)
    if answer == 'slot' then
        return { 'slot', wanted_slot(name, task) }
    elseif answer == 'lost' then
        return { 'fenced', task.token }
    end
elseif args.requeue and tonumber(task.attempt) < args.attempts then
    return_task(name, task, int(now + args.delay))
elseif args.drop and not args.requeue then
    remove_task(name, task)
else
    bury_task(name, task, args.reason)
end
return { 'done', task['until'] or '', has_returns and '1' or '0' }

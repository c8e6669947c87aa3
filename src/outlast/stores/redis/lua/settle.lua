-- What became of a task that was handed out.
--
-- ARGV[2]  msgpack: claim (queue, run, id, token), verb (ack, nack, extend), and for nack: requeue,
--          drop, delay (microseconds), reason, attempts; for extend: lease (microseconds)
--          and slot_ends (of a slot elsewhere, if it was extended)
-- Returns  {"want", keys}, {"notfound"}, {"fenced", token}, {"slot", what slots.lua has to extend}, or
--          {"done", until or "", whether a slot is to be given back}

-- include: head
-- include: runs
-- include: tasks

local wish = cmsgpack.unpack(ARGV[2])
need_tasks()
if wish.claim.run ~= '' then
    need(of_run(wish.claim.run, 'tasks'))
end
if #missing > 0 then
    return { 'want', missing }
end
local held, task, name = held_task(wish.claim)
if not task then
    return { 'notfound' }
end
if not held then
    return { 'fenced', task.token }
end
if wish.verb == 'ack' then
    remove_task(name, task)
elseif wish.verb == 'extend' then
    local answer = renew_task(name, task, wish.lease, wish.slot_ends)
    if answer == 'slot' then
        return { 'slot', wanted_slot(name, task) }
    elseif answer == 'lost' then
        return { 'fenced', task.token }
    end
elseif wish.requeue and tonumber(task.attempt) < wish.attempts then
    return_task(name, task, int(now + wish.delay))
elseif wish.drop and not wish.requeue then
    remove_task(name, task)
else
    bury_task(name, task, wish.reason)
end
return { 'done', task['until'] or '', has_returns and '1' or '0' }

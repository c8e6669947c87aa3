-- Slots of tasks that live in other partitions: taken, extended, given back.
--
-- ARGV[2]  msgpack list of: verb, name (of the task), and for
--          force, extend  slot (scope, key, ticket), lease (microseconds, nil for good)
--          drop           ticket, undo (whether it has not even begun)
--          began          ticket, at
-- Returns  {"want", keys} or {"done", {{"ok", end of the slot or ""} or {"no"}, …}}

-- include: head
-- include: runs
-- include: tasks
-- include: policy

need_policy()
if #missing > 0 then
    return { 'want', missing }
end
local answers = {}
for n, wish in ipairs(cmsgpack.unpack(ARGV[2])) do
    local is_done, ends = true, nil
    if wish.verb == 'drop' then
        local slot = drop_slot(wish.name, wish.ticket)
        if slot and wish.undo then
            remove_start(slot)
        end
    elseif wish.verb == 'began' then
        local slot = find_slot(wish.name)
        if slot and slot.ticket == wish.ticket then
            remove_start(slot)
            slot.at = wish.at
            save_slot(wish.name, slot)
            add_start(limits_of(slot.scope), slot)
        end
    else
        ends = slot_end(wish.lease, true)
        wish.slot['until'] = ends
        is_done = (wish.verb == 'force' and force_slot or extend_slot)(wish.name, wish.slot)
    end
    answers[n] = is_done and { 'ok', ends or '' } or { 'no' }
end
return { 'done', answers }

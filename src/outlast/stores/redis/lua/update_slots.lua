-- Take, extend or release the slots of tasks of other partitions.
--
-- ARGV[2]  msgpack list of: verb, name (of the task), and for
--          force, extend  slot (scope, key, ticket), lease (microseconds, nil for no expiry)
--          drop           ticket, undo (whether the task has not started)
--          began          ticket, at
-- Returns  {"want", keys} or {"done", {{"ok", end of the slot or ""} or {"no"}, …}}

-- include: prelude
-- include: runs
-- include: tasks
-- include: policy

need_policy()
if #missing > 0 then
    return { 'want', missing }
end
local answers = {}
for n, args in ipairs(cmsgpack.unpack(ARGV[2])) do
    local is_done, ends = true, nil
    if args.verb == 'drop' then
        local slot = drop_slot(args.name, args.ticket)
        if slot and args.undo then
            remove_start(slot)
        end
    elseif args.verb == 'began' then
        local slot = find_slot(args.name)
        if slot and slot.ticket == args.ticket then
            remove_start(slot)
            slot.at = args.at
            save_slot(args.name, slot)
            add_start(limits_of(slot.scope), slot)
        end
    else
        ends = slot_end(args.lease, true)
        args.slot['until'] = ends
        is_done = (args.verb == 'force' and force_slot or extend_slot)(args.name, args.slot)
    end
    answers[n] = is_done and { 'ok', ends or '' } or { 'no' }
end
return { 'done', answers }

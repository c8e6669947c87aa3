-- Deliver items to inboxes and finish the tasks whose results they are, atomically.
--
-- ARGV[2]  msgpack list of sends; one with `to` is for another partition and goes to the outbox
-- ARGV[3]  msgpack list of claims (queue, run, id, token, keep) whose tasks are finished, or kept without expiry;
--          with slot_ends if the slot in another partition has no expiry any more
-- Returns  {"want", keys}, {"lost", n-th claim}, {"slot", n-th claim, arguments of update_slots.lua}, or
--          {"done", {receipt, …}, whether the outbox was used}, a receipt being {"ok", number} {"again", number}
--          {"notfound"} {"fenced", token} {"closed", status} {"posted"}

-- include: prelude
-- include: runs
-- include: inbox
-- include: tasks
-- include: run_end

local sends, claims = cmsgpack.unpack(ARGV[2]), cmsgpack.unpack(ARGV[3])
for n, claim in ipairs(claims) do
    need_tasks()
    need(of_run(claim.run, 'tasks'))
    if #missing == 0 then
        local task, _, name = held_task(claim)
        local answer = task and claim.keep and slot_answer(name, task, nil, claim.slot_ends)
        if not task or answer == 'lost' then
            return { 'lost', int(n) }
        elseif answer == 'slot' then
            return { 'slot', int(n), wanted_slot(name, task) }
        end
    end
end
for _, send in ipairs(sends) do
    if send.to then
        need_outbox()
    else
        need_delivery(send)
    end
end
if #missing > 0 then
    return { 'want', missing }
end
local receipts, refusing = {}, {}
for n, send in ipairs(sends) do
    if send.to then
        put_in_outbox(send.entry)
        receipts[n] = { 'posted' }
    else
        receipts[n] = deliver_item(send)
        if receipts[n][1] ~= 'ok' and receipts[n][1] ~= 'again' then
            refusing[send.run] = true
        end
    end
end
for _, claim in ipairs(claims) do
    local task, _, name = held_task(claim)
    if task and claim.keep then
        if not refusing[claim.run] then
            hold_task(name, task, nil)
        end
    elseif task then
        remove_task(name, task)
    end
end
flush()
return { 'done', receipts, (has_outbox_entries or has_returns) and '1' or '0' }

-- Renew the leases of claims, or release them.
--
-- ARGV[2]  msgpack: claims (run, uid, token; for a task also id, queue, and slot_ends if its slot in another
--          partition was extended), lease (microseconds, nil to release)
-- Returns  {"want", keys} or {"done", now, answers, whether a slot is to be released}, an answer being
--          {"1", until or ""} where the claim was held, {"0"}, or {"slot", arguments of update_slots.lua}

-- include: prelude
-- include: runs
-- include: tasks

local args = cmsgpack.unpack(ARGV[2])
for _, claim in ipairs(args.claims) do
    if claim.id then
        need_tasks()
    else
        need_claim_indexes()
        find(claim.run)
    end
end
if #missing > 0 then
    return { 'want', missing }
end

local function renewed(claim)
    if claim.id then
        local task, _, name = held_task(claim)
        if not task then
            return { '0' }
        end
        if not args.lease then
            return_task(name, task)
        elseif task['until'] then
            local answer = renew_task(name, task, args.lease, claim.slot_ends)
            if answer == 'slot' then
                return { 'slot', wanted_slot(name, task) }
            elseif answer == 'lost' then
                return { '0' }
            end
        end
        return { '1', task['until'] or '' }
    end
    local run = find(claim.run)
    if not run or run.uid ~= claim.uid or run.token ~= claim.token or not run.owner then
        return { '0' }
    end
    unindex_claim(run)
    if args.lease then
        set(run, 'until', int(now + args.lease))
    else
        set(run, 'owner', nil)
        set(run, 'until', nil)
    end
    index_claim(run)
    return { '1', run['until'] or '' }
end

local answers = {}
for n, claim in ipairs(args.claims) do
    answers[n] = renewed(claim)
end
flush()
return { 'done', now_text, answers, has_returns and '1' or '0' }

-- Set the leases of claims, or give them back.
--
-- ARGV[2]  msgpack: claims (run, uid, token; and id, queue for a task), lease (microseconds, nil to
--          give them back)
-- Returns  {"want", keys} or {"done", now, {"1" where the claim was held, else "0"}}

-- include: head
-- include: runs
-- include: tasks

local wish = cmsgpack.unpack(ARGV[2])
for _, claim in ipairs(wish.claims) do
    if claim.id then
        need_tasks()
    else
        need_shelves()
        find(claim.run)
    end
end
if #missing > 0 then
    return { 'want', missing }
end

local function renewed(claim)
    if claim.id then
        local task, _, name = held_task(claim)
        if task and not wish.lease then
            return_task(name, task)
        elseif task and task['until'] then
            renew_task(name, task, wish.lease)
        end
        return task and true or false
    end
    local run = find(claim.run)
    if not run or run.uid ~= claim.uid or run.token ~= claim.token or not run.owner then
        return false
    end
    unshelve(run)
    if wish.lease then
        set(run, 'until', int(now + wish.lease))
    else
        set(run, 'owner', nil)
        set(run, 'until', nil)
    end
    shelve(run)
    return true
end

local answers = {}
for n, claim in ipairs(wish.claims) do
    answers[n] = renewed(claim) and '1' or '0'
end
flush()
return { 'done', now_text, answers }

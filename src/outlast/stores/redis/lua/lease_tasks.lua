-- Start tasks of a fair queue: a slot in the home partition of the scope, a lease in the task's own partition. One
-- call if both are the same partition, else first the home partition, then this one.
--
-- ARGV[2]  msgpack: scope (with grants), queues, owner, lease (microseconds), attempts (the most allowed), and
--          grants  list of {key, task, stride, ticket}: slots to give, in order
--          at_once whether granted tasks are leased here too
--          leases  list of {task, ticket, home, end of the slot}, or {task} without a slot
--          turns   list of {queue, key, pass}: new passes of fair keys
--          sleeps  list of {queue, key, time}: fair keys without capacity until then
-- Returns  {"want", keys} or {"done", {outcome, …}, {{key, pass}, …}}, outcomes of grants or leases:
--          {"refused"} {"gone"} {"buried"} {"stuck", ticket} if it has a slot without expiry already
--          {"granted", end of its slot or "", "1" if its start has to be reported}
--          {"taken", claim, state (msgpack), bytes}

-- include: prelude
-- include: runs
-- include: tasks
-- include: policy

local args = cmsgpack.unpack(ARGV[2])
local scope, grants, leases = args.scope, args.grants or {}, args.leases or {}
need('token')
need_tasks()
if args.grants then
    need_policy()
end

local function is_exhausted(task)
    return tonumber(task.attempt) >= args.attempts
end

local function need_burial(name)
    local task = #missing == 0 and find_task(name)
    if task and is_being_deleted(task.run, false) then
        return
    end
    if task and is_exhausted(task) and task.run ~= '' then
        need(of_run(task.run, 'tasks'))
    end
end

for _, grant in ipairs(args.at_once and grants or {}) do
    need_burial(grant[2])
end
for _, lease in ipairs(leases) do
    need_burial(lease[1])
end
if #missing > 0 then
    return { 'want', missing }
end

local function bury_exhausted(name, task)
    bury_task(name, task, 'no success in ' .. task.attempt .. ' attempts')
    return { 'buried' }
end

local function lease_out(name, task, ends, ticket, home)
    task.attempt = int(tonumber(task.attempt) + 1)
    lease_task(name, task, args.owner, ends, ticket, home)
    return { 'taken', claim_of(task), cmsgpack.pack(task), call('HGET', at('task:data'), name) }
end

local present = args.grants and global_pass_of(scope)
local last, passes = present, {}

local function advance_pass(key, stride)
    passes[key] = passes[key] or math.max(pass_of(scope, key), present)
    last = math.max(last, passes[key])
    passes[key] = passes[key] + stride
end

local limits, home = args.grants and limits_of(scope), args.grants and home_of(scope)

local function granted(key, name, stride, ticket)
    local task = args.at_once and find_task(name)
    if args.at_once and not (task and is_available(task)) then
        return { 'gone' }
    end
    if home then
        drop_ended_slots()
        local before = find_slot(name)
        if before and not before['until'] then
            return { 'stuck', before.ticket }
        elseif before or not may_start(limits, scope, key) then
            return { 'refused' }
        end
    end
    advance_pass(key, stride)
    local ends = slot_end(args.lease, not args.at_once)
    -- A lease in another partition counts for rates as if it started as late as possible, until it is reported.
    local begins = args.at_once and now_text or ends
    local slot = { scope = scope, key = key, ticket = ticket, at = begins, ['until'] = ends }
    if home then
        add_start(limits, slot)
    end
    if task and is_exhausted(task) then
        return bury_exhausted(name, task)
    end
    if home then
        save_slot(name, slot)
    end
    if args.at_once then
        return lease_out(name, task, ends, home and ticket, home)
    end
    return { 'granted', home and ends or '', home and (limits.rate or limits.key_rate) and '1' or '0' }
end

local function leased(name, ticket, home, slot_ends)
    local task = find_task(name)
    if not task or not is_available(task) then
        return { 'gone' }
    end
    if not ticket and home_of(task.queue) then
        return { 'refused' }  -- it has a policy since the scan
    elseif is_exhausted(task) then
        return bury_exhausted(name, task)
    end
    local ends = lease_end(args.lease, slot_ends)
    if tonumber(ends) <= now then
        return { 'gone' }  -- the caller was too slow
    end
    return lease_out(name, task, ends, ticket, home)
end

local outcomes = {}
for n, grant in ipairs(grants) do
    outcomes[n] = granted(unpack(grant))
end
for n, lease in ipairs(leases) do
    outcomes[n] = leased(unpack(lease))
end
local moved = {}
for key, pass in pairs(passes) do
    save_pass(scope, key, int(pass))
    for _, queue in ipairs(args.queues) do
        set_turn(queue, key, int(pass))
    end
    moved[#moved + 1] = { key, int(pass) }
end
if present and last > present then
    call('HSET', at('policy:global-pass'), scope, int(last))
end
for _, turn in ipairs(args.turns or {}) do
    set_turn(unpack(turn))
end
for _, sleep in ipairs(args.sleeps or {}) do
    local name = fair_key_name(sleep[1], sleep[2])
    local fair_key = find_fair_key(name)
    if fair_key then
        set_wake_time(name, fair_key, sleep[3])
    end
end
return { 'done', outcomes, moved }

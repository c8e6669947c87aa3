-- Tasks begin: slots for them in the partition of their scope, leases in their own. In one call where
-- both are the same partition, else first there, then here.
--
-- ARGV[2]  msgpack: scope (with grants), queues, owner, lease (microseconds), attempts (the most allowed), and
--          grants  list of {key, task, stride, ticket}: to be given slots, in the order of turns
--          at_once whether what is granted is leased here too
--          leases  list of {task, ticket, home, end of the slot}, or {task} without a slot
--          turns   list of {queue, key, pass}: how far lines are
--          sleeps  list of {queue, key, time}: lines that may not hand out anything until then
-- Returns  {"want", keys} or {"done", {outcome, …}, {{key, pass}, …}}, outcomes of grants or leases:
--          {"refused"} {"stuck", ticket} if it has a slot for good already, {"gone"} {"buried"} {"granted", end of its slot or "", "1" if it is to be told when it began}
--          {"taken", claim, state (msgpack), bytes}

-- include: head
-- include: runs
-- include: tasks
-- include: policy

local wish = cmsgpack.unpack(ARGV[2])
local scope, grants, leases = wish.scope, wish.grants or {}, wish.leases or {}
need('token')
need_tasks()
if wish.grants then
    need_policy()
end

local function is_worn(task)
    return tonumber(task.attempt) >= wish.attempts
end

local function need_grave(name)
    local task = #missing == 0 and find_task(name)
    if task and is_going(task.run, false) then
        return
    end
    if task and is_worn(task) and task.run ~= '' then
        need(of_run(task.run, 'tasks'))
    end
end

for _, grant in ipairs(wish.at_once and grants or {}) do
    need_grave(grant[2])
end
for _, lease in ipairs(leases) do
    need_grave(lease[1])
end
if #missing > 0 then
    return { 'want', missing }
end

local function bury_worn(name, task)
    bury_task(name, task, 'no success in ' .. task.attempt .. ' attempts')
    return { 'buried' }
end

local function hand_out(name, task, ends, ticket, home)
    task.attempt = int(tonumber(task.attempt) + 1)
    lease_task(name, task, wish.owner, ends, ticket, home)
    return { 'taken', claim_of(task), cmsgpack.pack(task), call('HGET', at('task:data'), name) }
end

local present = wish.grants and present_of(scope)
local last, passes = present, {}

local function move_on(key, stride)
    passes[key] = passes[key] or math.max(passed_by(scope, key), present)
    last = math.max(last, passes[key])
    passes[key] = passes[key] + stride
end

local limits, home = wish.grants and limits_of(scope), wish.grants and home_of(scope)

local function granted(key, name, stride, ticket)
    local task = wish.at_once and find_task(name)
    if wish.at_once and not (task and is_available(task)) then
        return { 'gone' }
    end
    if home then
        drop_ended_slots()
        local before = find_slot(name)
        if before and not before['until'] then
            return { 'stuck', before.ticket }
        elseif before or not may_begin(limits, scope, key) then
            return { 'refused' }
        end
    end
    move_on(key, stride)
    local ends = slot_end(wish.lease, not wish.at_once)
    -- What is leased elsewhere counts for rates as if it began as late as it can, until that is told.
    local begins = wish.at_once and now_text or ends
    local slot = { scope = scope, key = key, ticket = ticket, at = begins, ['until'] = ends }
    if home then
        add_start(limits, slot)
    end
    if task and is_worn(task) then
        return bury_worn(name, task)
    end
    if home then
        save_slot(name, slot)
    end
    if wish.at_once then
        return hand_out(name, task, ends, home and ticket, home)
    end
    return { 'granted', home and ends or '', home and (limits.rate or limits.key_rate) and '1' or '0' }
end

local function leased(name, ticket, home, slot_ends)
    local task = find_task(name)
    if not task or not is_available(task) then
        return { 'gone' }
    end
    if not ticket and home_of(task.queue) then
        return { 'refused' }  -- it has rules since it was looked at
    elseif is_worn(task) then
        return bury_worn(name, task)
    end
    local ends = lease_end(wish.lease, slot_ends)
    if tonumber(ends) <= now then
        return { 'gone' }  -- whoever asks was too slow
    end
    return hand_out(name, task, ends, ticket, home)
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
    for _, queue in ipairs(wish.queues) do
        set_turn(queue, key, int(pass))
    end
    moved[#moved + 1] = { key, int(pass) }
end
if present and last > present then
    call('HSET', at('policy:present'), scope, int(last))
end
for _, turn in ipairs(wish.turns or {}) do
    set_turn(unpack(turn))
end
for _, sleep in ipairs(wish.sleeps or {}) do
    local name = line_name(sleep[1], sleep[2])
    local line = find_line(name)
    if line then
        let_sleep(name, line, sleep[3])
    end
end
return { 'done', outcomes, moved }

-- Tasks: leased, returned, buried. A task is named queue, run, id; that name is its field in the hashes.
--
-- task:data    HASH  task → bytes
-- task:state   HASH  task → msgpack: queue, run, id, uid, key (if it has one), priority, ready, order,
--                    attempt, enqueued, token, and while it is claimed owner, until, ticket and home
-- task:free    ZSET  by text: queue priority ready order task, of free tasks without a key; those with a key
--                    are in task:keyed, see fair_keys.lua
-- task:held    ZSET  by text: queue until task
-- task:order   counter of arrivals
-- dead:data    HASH  task → bytes
-- dead:state   HASH  task → msgpack, as above with reason and died
-- dead:order   ZSET  by text: queue died id task
-- wf:RUN:tasks SET   the tasks of a run, live and dead

-- include: fair_keys
-- include: slots

local NEVER = string.rep('9', 20)

local function task_name(queue, run, id)
    return framed(queue) .. framed(run) .. id
end

local function free_member(name, task)
    return framed(task.queue) .. sortable(task.priority) .. sortable(task.ready)
        .. sortable(task.order) .. name
end

local function held_member(name, task)
    return framed(task.queue) .. '1' .. (task['until'] and sub(sortable(task['until']), 2) or NEVER)
        .. name
end

local function dead_member(name, task)
    return framed(task.queue) .. sortable(task.died) .. framed(task.id) .. name
end

local function need_tasks()
    for _, name in ipairs({ 'data', 'state', 'free', 'keyed', 'held', 'order' }) do
        need('task:' .. name)
    end
    for _, name in ipairs({ 'state', 'turn', 'asleep', 'blocked', 'pass', 'by-pass' }) do
        need('fair:' .. name)
    end
    for _, name in ipairs({ 'state', 'held', 'until', 'returns' }) do
        need('slot:' .. name)
    end
    for _, name in ipairs({ 'homes', 'limits', 'global-pass' }) do
        need('policy:' .. name)
    end
    for _, name in ipairs({ 'data', 'state', 'order' }) do
        need('dead:' .. name)
    end
end

local function find_task(name)
    local packed = call('HGET', at('task:state'), name)
    return packed and cmsgpack.unpack(packed) or nil
end

-- The task that a claim (queue, run, id, token) still holds, the task itself, and its name.
local function held_task(claim)
    local name = task_name(claim.queue, claim.run, claim.id)
    local task = find_task(name)
    local holds = task and task.owner and task.token == claim.token
    return holds and task or nil, task, name
end

local function save_task(name, task)
    call('HSET', at('task:state'), name, cmsgpack.pack(task))
end

local function free_task(name, task, is_new)
    if task.key then
        add_to_fair_key(name, task, is_new)
    else
        call('ZADD', at('task:free'), '0', free_member(name, task))
    end
end

local function unshelve_task(name, task)
    if task.key then
        remove_from_fair_key(name, task)
    else
        call('ZREM', at('task:free'), free_member(name, task))
    end
    call('ZREM', at('task:held'), held_member(name, task))
end

local function add_task(name, task, bytes)
    if call('HEXISTS', at('task:state'), name) == 1 then
        return false
    end
    task.order = int(call('INCR', at('task:order')))
    task.token = '0'
    save_task(name, task)
    call('HSET', at('task:data'), name, bytes)
    free_task(name, task, true)
    if task.run ~= '' then
        call('SADD', at(of_run(task.run, 'tasks')), name)
    end
    return true
end

-- Remove a task from its run when neither a live nor a dead one is left.
local function forget_task(name, run)
    if run ~= '' and call('HEXISTS', at('task:state'), name) == 0
        and call('HEXISTS', at('dead:state'), name) == 0 then
        call('SREM', at(of_run(run, 'tasks')), name)
    end
end

local function remove_task(name, task)
    unshelve_task(name, task)
    give_back(name, task)
    call('HDEL', at('task:state'), name)
    call('HDEL', at('task:data'), name)
    forget_task(name, task.run)
end

local function find_dead(name)
    local packed = call('HGET', at('dead:state'), name)
    return packed and cmsgpack.unpack(packed) or nil
end

local function remove_dead(name, task)
    call('ZREM', at('dead:order'), dead_member(name, task))
    call('HDEL', at('dead:state'), name)
    call('HDEL', at('dead:data'), name)
    forget_task(name, task.run)
end

local function lay_dead(name, task, bytes)
    call('HSET', at('dead:state'), name, cmsgpack.pack(task))
    call('HSET', at('dead:data'), name, bytes)
    call('ZADD', at('dead:order'), '0', dead_member(name, task))
    if task.run ~= '' then
        call('SADD', at(of_run(task.run, 'tasks')), name)
    end
end

local function bury_task(name, task, reason)
    local bytes = call('HGET', at('task:data'), name)
    remove_task(name, task)
    local before = find_dead(name)
    if before then
        remove_dead(name, before)
    end
    task.owner, task['until'], task.reason, task.died = nil, nil, reason, now_text
    lay_dead(name, task, bytes)
end

-- Delete tasks of a run, live or dead: those whose id is in `ids`, or all.
local function drop_tasks(run_id, ids)
    for _, name in ipairs(call('SMEMBERS', at(of_run(run_id, 'tasks')))) do
        local task = find_task(name)
        if task and (not ids or ids[task.id]) then
            remove_task(name, task)
        end
        local dead = find_dead(name)
        if dead and (not ids or ids[dead.id]) then
            remove_dead(name, dead)
        end
    end
end

local function need_tasks_of(run_id)
    local all = need(of_run(run_id, 'tasks'))
    if all and call('EXISTS', all) == 1 then
        need_tasks()
    end
end

-- Claim a task until a time (text), or without expiry; under a slot with its ticket and home.
local function lease_task(name, task, owner, ends, ticket, home)
    unshelve_task(name, task)
    task.owner, task.token, task['until'] = owner, next_token(), ends
    task.ticket, task.home = ticket, home
    save_task(name, task)
    call('ZADD', at('task:held'), '0', held_member(name, task))
end

local function return_task(name, task, ready)
    unshelve_task(name, task)
    give_back(name, task)
    task.owner, task['until'] = nil, nil
    task.ready = ready or task.ready
    save_task(name, task)
    free_task(name, task)
end

-- The end of a lease of so many microseconds from now, before the end of its slot (text, or nil).
local function lease_end(ttl, slot_ends)
    return int(slot_ends and math.min(now + ttl, tonumber(slot_ends) - SKEW) or now + ttl)
end

-- What an extended lease (`ttl`, nil: no expiry) needs of its slot: 'done' if it has it, 'lost' if it cannot have
-- it, 'slot' if the slot is in another partition: the caller extends it there and calls again with its end. The
-- lease must not have ended by then, because the slot may have been given away.
local function slot_answer(name, task, ttl, slot_ends)
    if not task.ticket then
        return 'done'
    end
    if is_here(task.home) then
        return extend_slot(name, slot_of(task, slot_end(ttl, false))) and 'done' or 'lost'
    end
    if task['until'] and tonumber(task['until']) <= now then
        return 'lost'
    end
    return slot_ends and 'done' or 'slot'
end

local function hold_task(name, task, ends)
    unshelve_task(name, task)
    task['until'] = ends
    save_task(name, task)
    call('ZADD', at('task:held'), '0', held_member(name, task))
end

-- Set a lease to `ttl` from now, and its slot before that.
local function renew_task(name, task, ttl, slot_ends)
    local answer = slot_answer(name, task, ttl, slot_ends)
    if answer == 'done' then
        hold_task(name, task, lease_end(ttl, slot_ends))
    end
    return answer
end

-- Return the tasks of expired leases to their queue. The old owner may still finish a task until another process
-- takes it: owner and token stay.
local function reclaim_expired(frame)
    local expired = call('ZRANGEBYLEX', at('task:held'), '[' .. frame,
        '[' .. frame .. sortable(now_text) .. '\255')
    for _, member in ipairs(expired) do
        local name = sub(member, #frame + 22)
        call('ZREM', at('task:held'), member)
        free_task(name, find_task(name))
    end
end

-- The arguments for update_slots.lua to take or extend the slot of a task.
local function wanted_slot(name, task, home, ticket)
    local slot = slot_of(task)
    slot.ticket = ticket or task.ticket
    return cmsgpack.pack({ home = home or task.home, name = name, slot = slot })
end

local function is_available(task)
    local held = task.owner and (not task['until'] or tonumber(task['until']) > now)
    return not held and tonumber(task.ready) <= now
end

local function claim_of(task)
    return { task.owner, task.token, now_text, task['until'] or '', task.run, task.uid, task.id,
        task.queue }
end

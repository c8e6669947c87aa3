-- Concurrency slots: one per task in flight of a queue with a policy. A slot is taken before its task is leased,
-- lasts as long as the lease or longer, and is released with any end of the lease.
--
-- In the home partition of the queue's scope (the part of its name before a slash):
-- slot:state    HASH  task → msgpack: scope, key, ticket, at, until (none: no expiry)
-- slot:held     ZSET  by text: scope key task
-- slot:until    ZSET  by the time of its end: task
-- policy:limits   HASH  scope → msgpack: concurrency, key_concurrency, rate and key_rate (limit, per in
--                     microseconds), paused, ages
-- In each partition:
-- policy:homes    HASH  scope → the home partition of its slots; none: it has no policy, and nothing is counted
-- slot:returns  SET   home ticket task: slots of tasks that have ended here, to be released in their home
--
-- A task that is leased under a slot has `ticket` and `home`. The ticket identifies the lease: a message about an
-- earlier lease is ignored.

local SKEW = 250000  -- microseconds by which the clocks of two nodes may differ
local has_returns = false

-- The partition that counts a queue's tasks, or nil if none does.
local function home_of(queue)
    local home = call('HGET', at('policy:homes'), scope_of(queue))
    return home and tonumber(home) or nil
end

local function is_here(home)
    return tonumber(home) == context.part
end

local function find_slot(name)
    local packed = call('HGET', at('slot:state'), name)
    return packed and cmsgpack.unpack(packed) or nil
end

local function save_slot(name, slot)
    call('HSET', at('slot:state'), name, cmsgpack.pack(slot))
    call('ZADD', at('slot:held'), '0', framed(slot.scope) .. framed(slot.key) .. name)
    if slot['until'] then
        call('ZADD', at('slot:until'), slot['until'], name)
    else
        call('ZREM', at('slot:until'), name)
    end
end

local function remove_slot(name, slot)
    call('ZREM', at('slot:held'), framed(slot.scope) .. framed(slot.key) .. name)
    call('ZREM', at('slot:until'), name)
    call('HDEL', at('slot:state'), name)
    if slot.key ~= '' then
        wake_blocked(slot.scope, slot.key)
    end
end

local function drop_slot(name, ticket)
    local slot = find_slot(name)
    if slot and slot.ticket == ticket then
        remove_slot(name, slot)
        return slot
    end
    return nil
end

local function drop_ended_slots()
    for _, name in ipairs(call('ZRANGEBYSCORE', at('slot:until'), '-inf', now_text)) do
        remove_slot(name, find_slot(name))
    end
end

local function count_slots(head)
    return call('ZLEXCOUNT', at('slot:held'), '[' .. head, '(' .. head .. '\255')
end

local function limits_of(scope)
    local packed = call('HGET', at('policy:limits'), scope)
    return packed and cmsgpack.unpack(packed) or {}
end

-- Whether the limits allow one more slot. Ended slots are not counted.
local function has_slot(limits, scope, key)
    drop_ended_slots()
    local head = framed(scope)
    if limits.concurrency and count_slots(head) >= limits.concurrency then
        return false
    end
    return key == '' or not limits.key_concurrency
        or count_slots(head .. framed(key)) < limits.key_concurrency
end

-- The end of a slot for a lease of so many microseconds (nil: no expiry). For a task of another partition it is
-- later, so that the lease ends first by either clock.
local function slot_end(ttl, is_abroad)
    return ttl and int(now + ttl + (is_abroad and 2 * SKEW or 0)) or nil
end

-- Give a task a slot without regard to limits, unless another process is about to lease it.
local function force_slot(name, slot)
    drop_ended_slots()
    if find_slot(name) then
        return false
    end
    slot.at = now_text
    save_slot(name, slot)
    return true
end

-- Set the end of a slot. An ended slot is taken again if the limits allow it.
local function extend_slot(name, wanted)
    drop_ended_slots()
    local slot = find_slot(name)
    if slot and slot.ticket ~= wanted.ticket then
        return false
    end
    if not slot and not has_slot(limits_of(wanted.scope), wanted.scope, wanted.key) then
        return false
    end
    if slot and not slot['until'] then
        return true  -- it is for good
    end
    wanted.at = slot and slot.at or now_text
    save_slot(name, wanted)
    return true
end

local function slot_of(task, ends)
    return { scope = scope_of(task.queue), key = task.key or '', ticket = task.ticket,
        ['until'] = ends }
end

-- A lease has ended: release its slot, now or through slot:returns.
local function give_back(name, task)
    if task.ticket then
        if is_here(task.home) then
            drop_slot(name, task.ticket)
        else
            call('SADD', at('slot:returns'), task.home .. ' ' .. framed(task.ticket) .. name)
            has_returns = true
        end
        task.ticket, task.home = nil, nil
    end
end

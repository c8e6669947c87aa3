-- Queue policies in the home partition of their scope, and the starts that rates count.
--
-- policy:rules       HASH  scope → bytes: the policy in force; policy:declared: the one that code declared last
-- policy:starts      ZSET  by text: scope at key ticket, for the period of the rate
-- policy:key-starts  ZSET  by text: scope key at ticket

local function need_policy()
    need_tasks()
    for _, name in ipairs({ 'rules', 'declared', 'starts', 'key-starts' }) do
        need('policy:' .. name)
    end
end

local function count_starts(set, head, per)
    local from = '(' .. head .. sortable(int(now - per)) .. '\255'
    return call('ZLEXCOUNT', at(set), from, '(' .. head .. '\255')
end

local function first_start(set, head, per)
    local from = '(' .. head .. sortable(int(now - per)) .. '\255'
    local member = call('ZRANGEBYLEX', at(set), from, '(' .. head .. '\255', 'LIMIT', 0, 1)[1]
    return member and int(tonumber(sub(member, #head + 2, #head + 21))) or ''
end

local function add_start(limits, slot)
    local per = math.max(limits.rate and limits.rate.per or 0,
        limits.key_rate and limits.key_rate.per or 0)
    if per == 0 then
        return
    end
    local head = framed(slot.scope)
    local old = call('ZRANGEBYLEX', at('policy:starts'), '[' .. head,
        '[' .. head .. sortable(int(now - per)) .. '\255')
    for _, member in ipairs(old) do
        local key_end = #head + 29 + tonumber(sub(member, #head + 22, #head + 29), 16)
        call('ZREM', at('policy:starts'), member)
        call('ZREM', at('policy:key-starts'), head .. sub(member, #head + 22, key_end)
            .. sub(member, #head + 1, #head + 21) .. sub(member, key_end + 1))
    end
    call('ZADD', at('policy:starts'), '0', head .. sortable(slot.at) .. framed(slot.key) .. slot.ticket)
    call('ZADD', at('policy:key-starts'), '0',
        head .. framed(slot.key) .. sortable(slot.at) .. slot.ticket)
end

-- Undo a start.
local function remove_start(slot)
    local head, key, at_text = framed(slot.scope), framed(slot.key), sortable(slot.at)
    call('ZREM', at('policy:starts'), head .. at_text .. key .. slot.ticket)
    call('ZREM', at('policy:key-starts'), head .. key .. at_text .. slot.ticket)
end

-- Whether the policy allows one more task of a key to start. The only place that enforces it.
local function may_start(limits, scope, key)
    if limits.paused or not has_slot(limits, scope, key) then
        return false
    end
    local head, rate, key_rate = framed(scope), limits.rate, limits.key_rate
    if rate and count_starts('policy:starts', head, rate.per) >= rate.limit then
        return false
    end
    return key == '' or not key_rate
        or count_starts('policy:key-starts', head .. framed(key), key_rate.per) < key_rate.limit
end

-- The state of a scope: {policy or "", global pass, in flight, started, first start or "", {per key: pass, in
-- flight, started, first start or ""}}.
local function queue_state(scope, keys)
    drop_ended_slots()
    local limits, head, found = limits_of(scope), framed(scope), {}
    local rate, key_rate = limits.rate, limits.key_rate
    for n, key in ipairs(keys) do
        local own = head .. framed(key)
        found[n] = {
            int(pass_of(scope, key)), int(count_slots(own)),
            key_rate and int(count_starts('policy:key-starts', own, key_rate.per)) or '0',
            key_rate and first_start('policy:key-starts', own, key_rate.per) or '',
        }
    end
    return { call('HGET', at('policy:rules'), scope) or '', int(global_pass_of(scope)), int(count_slots(head)),
        rate and int(count_starts('policy:starts', head, rate.per)) or '0',
        rate and first_start('policy:starts', head, rate.per) or '', found }
end

-- Find due, unclaimed tasks, by priority and time.
--
-- KEYS     task:data, task:state, task:free, task:keyed, task:held
-- ARGV[2]  msgpack: queue (or nil for all), limit, counts (whether to count only)
-- Returns  {"count", number} or {"done", {{sort key, state (msgpack), bytes}, …}}

-- include: prelude
-- include: prefixes

local args = cmsgpack.unpack(ARGV[2])
local free, held, states = at('task:free'), at('task:held'), at('task:state')
local keyed = at('task:keyed')
local present = sortable(now_text)

-- The distinct queues of all sets.
local function queues()
    local found, is_known = {}, {}
    for _, set in ipairs({ free, keyed, held }) do
        for _, pair in ipairs(prefixes_in(set)) do
            if not is_known[pair[1]] then
                is_known[pair[1]] = true
                found[#found + 1] = pair[1]
            end
        end
    end
    return found
end

local count, places = 0, {}

-- The ready tasks of each priority, of a queue or a fair key.
local function scan_free(free, frame)
    local level = '[' .. frame
    local left = args.limit
    while args.counts or left > 0 do
        local member = call('ZRANGEBYLEX', free, level, '(' .. frame .. '\255', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        local head = sub(member, 1, #frame + 21)
        local from, to = '[' .. head, '[' .. head .. present .. '\255'
        if args.counts then
            count = count + call('ZLEXCOUNT', free, from, to)
        else
            for _, place in ipairs(call('ZRANGEBYLEX', free, from, to, 'LIMIT', 0, left)) do
                places[#places + 1] = { sub(place, #frame + 1), sub(place, #frame + 64) }
                left = left - 1
            end
        end
        level = '(' .. head .. '\255'
    end
end

local function scan_keyed(frame)
    for _, pair in ipairs(prefixes_in(keyed, frame)) do
        scan_free(keyed, pair[1])
    end
end

-- Tasks with an expired lease.
local function scan_held(frame)
    local from, to = '[' .. frame, '[' .. frame .. present .. '\255'
    if args.counts then
        count = count + call('ZLEXCOUNT', held, from, to)
        return
    end
    for _, member in ipairs(call('ZRANGEBYLEX', held, from, to)) do
        local name = sub(member, #frame + 22)
        local task = cmsgpack.unpack(call('HGET', states, name))
        local place = sortable(task.priority) .. sortable(task.ready) .. sortable(task.order) .. name
        places[#places + 1] = { place, name }
    end
end

for _, frame in ipairs(args.queue and { framed(args.queue) } or queues()) do
    scan_free(free, frame)
    scan_keyed(frame)
    scan_held(frame)
end
if args.counts then
    return { 'count', int(count) }
end
table.sort(places, function(left, right) return left[1] < right[1] end)
local found = {}
for n = 1, math.min(#places, args.limit) do
    local place, name = places[n][1], places[n][2]
    found[n] = { place, call('HGET', states, name), call('HGET', at('task:data'), name) }
end
return { 'done', found }

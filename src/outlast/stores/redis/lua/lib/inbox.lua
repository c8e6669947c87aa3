-- Inboxes: items are numbered by run, delivered once by id, and deleted by the commit that consumes them.
--
-- wf:ID:inbox  ZSET  by number: "NUMBER TIME " and the bytes of the item
-- wf:ID:items  HASH  item id → number, for the life of the run
-- A send is {run, id, bytes, uid or nil}.

local function need_delivery(send)
    local run = find(send.run)
    if run then
        need(of_run(send.run, 'inbox'))
        need(of_run(send.run, 'items'))
        need_claim_indexes()
    end
end

-- Put one item into an inbox and make its run runnable: {"ok", number} or a refusal.
local function deliver_item(send)
    local run = find(send.run)
    if not run then
        return { 'notfound' }
    end
    if send.uid and send.uid ~= run.uid then
        return { 'fenced', run.token }
    end
    local items = at(of_run(run.id, 'items'))
    local known = call('HGET', items, send.id)
    if known then
        return { 'again', known }
    end
    if is_ended(run) then
        return { 'closed', run.status }
    end
    local number = int(tonumber(run.inbox) + 1)
    call('ZADD', at(of_run(run.id, 'inbox')), number, number .. ' ' .. now_text .. ' ' .. send.bytes)
    call('HSET', items, send.id, number)
    set(run, 'inbox', number)
    if not run.runnable or tonumber(run.runnable) > now then
        unindex_claim(run)
        set(run, 'runnable', now_text)
        index_claim(run)
    end
    return { 'ok', number }
end

local RECEIPTS_CARRIED = 1000

-- A new life keeps the receipts of the last items and of all unread ones.
local function trim_receipts(run)
    local items, inbox = at(of_run(run.id, 'items')), at(of_run(run.id, 'inbox'))
    if call('HLEN', items) <= RECEIPTS_CARRIED + call('ZCARD', inbox) then
        return
    end
    local last, waits, known = tonumber(run.inbox) - RECEIPTS_CARRIED, {}, call('HGETALL', items)
    local numbers = call('ZRANGEBYSCORE', inbox, '-inf', last, 'WITHSCORES')
    for i = 2, #numbers, 2 do
        waits[tonumber(numbers[i])] = true
    end
    for i = 1, #known, 2 do
        local number = tonumber(known[i + 1])
        if number <= last and not waits[number] then
            call('HDEL', items, known[i])
        end
    end
end

-- Whether there is an item that the owner of the run has not read.
local function has_unseen(run, seen)
    return tonumber(run.inbox) > tonumber(seen)
        and call('ZCOUNT', at(of_run(run.id, 'inbox')), '(' .. seen, '+inf') > 0
end

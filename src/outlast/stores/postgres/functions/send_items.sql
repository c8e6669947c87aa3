-- Delivers items, and finishes the tasks whose results they are, or keeps those claims without expiry
-- (`keep`). One row an item. A row 0 with the number of a claim: that claim is lost or busy, and nothing
-- was written. Tasks of a busy run stay, because the sender retries and needs them; tasks of a run that
-- refuses an item are not kept.
CREATE OR REPLACE FUNCTION @send_items(at bigint, shift bigint, sends text, finishes text, blobs bytea[])
RETURNS TABLE (n int, verdict text, given bigint, current bigint, stands text)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint;
    busy text[] := '{}';
    refusing text[] := '{}';
    target record;
    s record;
    f record;
BEGIN
    -- Against deadlock: in order of their ids, and before the tasks, as a commit that ends a run does.
    FOR target IN
        SELECT DISTINCT x.run COLLATE "C" AS id FROM jsonb_to_recordset(sends::jsonb) AS x (run text)
        ORDER BY 1
    LOOP
        IF NOT @lock_run(target.id) THEN
            busy := busy || target.id;
        END IF;
    END LOOP;
    FOR f IN
        SELECT * FROM jsonb_to_recordset(finishes::jsonb)
            AS x (i int, task_hash text, token bigint, keep boolean)
    LOOP
        verdict := @check_task_claim(decode(f.task_hash, 'hex'), f.token);
        IF verdict = '' AND f.keep AND EXISTS (
            SELECT FROM @tasks AS t
            WHERE t.task_hash = decode(f.task_hash, 'hex')
              AND @lost_slot(t.queue, t.claimed_until, at, shift)
        ) THEN
            verdict := 'lost';
        END IF;
        IF verdict <> '' THEN
            n := 0;
            given := f.i;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    now := @now(at, shift);
    FOR s IN
        SELECT * FROM jsonb_to_recordset(sends::jsonb)
            AS x (i int, run text, uid text, id text, kind text, name text, sender text, data int)
    LOOP
        n := s.i;
        IF s.run = ANY (busy) THEN
            verdict := 'busy';
        ELSE
            SELECT d.verdict, d.given, d.current, d.stands INTO verdict, given, current, stands
            FROM @deliver_item(now, s.run, s.uid, s.id, s.kind, s.name, s.sender, blobs[s.data]) AS d;
        END IF;
        IF verdict NOT IN ('done', 'again') THEN
            refusing := refusing || s.run;
        END IF;
        RETURN NEXT;
    END LOOP;
    DELETE FROM @tasks AS t WHERE t.run_id <> ALL (busy) AND t.task_hash = ANY (ARRAY(
        SELECT decode(x.task_hash, 'hex')
        FROM jsonb_to_recordset(finishes::jsonb) AS x (task_hash text, keep boolean)
        WHERE NOT x.keep
    ));
    UPDATE @tasks AS t SET claimed_until = NULL WHERE t.run_id <> ALL (refusing) AND t.task_hash = ANY (ARRAY(
        SELECT decode(x.task_hash, 'hex')
        FROM jsonb_to_recordset(finishes::jsonb) AS x (task_hash text, keep boolean)
        WHERE x.keep
    ));
END $$;

-- When the next run becomes claimable. Free runs by workflow: a skip scan, two seeks per workflow. A claimed
-- run becomes claimable when its lease has ended and it is due.
CREATE OR REPLACE FUNCTION @next_runnable_at() RETURNS bigint
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
BEGIN
    RETURN (
        WITH RECURSIVE workflow_list (workflow, due) AS (
            (SELECT r.workflow, r.runnable_at FROM @runs AS r
             WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
             ORDER BY r.workflow, r.runnable_at LIMIT 1)
            UNION ALL
            SELECT n.workflow, n.runnable_at FROM workflow_list CROSS JOIN LATERAL (
                SELECT r.workflow, r.runnable_at FROM @runs AS r
                WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
                  AND r.workflow > workflow_list.workflow
                ORDER BY r.workflow, r.runnable_at LIMIT 1
            ) AS n
        )
        SELECT least(
            (SELECT min(workflow_list.due) FROM workflow_list),
            (SELECT min(greatest(r.runnable_at, r.claimed_until)) FROM @runs AS r
             WHERE r.owner IS NOT NULL AND r.runnable_at IS NOT NULL)
        )
    );
END $$;

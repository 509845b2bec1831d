package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/audit"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/ledger/record"
)

func (c *cli) audit() *cobra.Command {
	return noun("audit", "Show and verify who changed what",
		"Each change by a person or a program has an entry, and so has the end of each job that\nmay have changed something. The entries of each install are chained by their hashes, and\nthe control plane signs the heads of the chains about each minute. An export can be\nverified without the control plane.",
		c.auditList(), c.auditExport(), c.auditVerify())
}

// entryFilter selects entries.
type entryFilter struct {
	install, object, actor, since string
	from                          time.Time
}

func (f *entryFilter) parse(now time.Time) error {
	if f.since == "" {
		return nil
	}
	if d, err := time.ParseDuration(f.since); err == nil && d >= 0 {
		f.from = now.Add(-d)
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, f.since); err == nil {
			f.from = t
			return nil
		}
	}
	return usage("Use a duration such as 24h, a day such as 2026-11-28, or a time such as 2026-11-28T10:00:00Z.", "--since %q is no time", f.since)
}

func (f *entryFilter) selects(e wire.AuditEntry) bool {
	object := strings.TrimSpace(e.Object.Kind + " " + e.Object.Name)
	return (f.actor == "" || f.actor == e.Actor.Name || f.actor == e.Actor.ID) &&
		(f.object == "" || slices.Contains([]string{object, e.Object.Kind, e.Object.Name, e.Object.ID}, f.object)) && !e.At.Before(f.from)
}

func (c *cli) auditList() *cobra.Command {
	var f entryFilter
	var shown extent
	cmd := &cobra.Command{
		Use: "list", Short: "List changes with their actors, newest first",
		Long: `Lists who changed what and when: the fields of the object before and after the change,
and the request. A secret has a digest in place of its value. Needs the role viewer of
the whole org. A change is listed within about a minute.`,
		Example: `  fairlead audit list --install acme --since 24h
  fairlead audit list --actor ci --object "runner eu-1"`,
		Args: cobra.NoArgs,
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			if err := f.parse(c.env.Now()); err != nil {
				return err
			}
			chains, err := auditChains(ctx, cl, f.install)
			if err != nil {
				return err
			}
			limit := shown.limit
			if shown.all {
				limit = 0
			}
			var all []wire.AuditEntry
			for _, chain := range chains {
				n := 0
				err := eachEntry(ctx, cl, chain.Chain, func(_ json.RawMessage, e wire.AuditEntry) bool {
					if f.selects(e) {
						all, n = append(all, e), n+1
					}
					return (limit == 0 || n < limit) && !e.Recorded.Before(f.from)
				})
				if err != nil {
					return err
				}
			}
			slices.SortStableFunc(all, func(a, b wire.AuditEntry) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.N, a.N)) })
			if limit > 0 && len(all) > limit {
				c.say("These are the newest %d. --all prints all of them.", limit)
				all = all[:limit]
			}
			return listing(c, all, view.AuditEntries(all), "There are no such changes.")
		}),
	}
	newestFlags(cmd, &shown)
	cmd.Flags().StringVar(&f.install, "install", "", "only changes of this install, by `NAME`; also of one that was forgotten")
	cmd.Flags().StringVar(&f.object, "object", "", "only changes of this `OBJECT`: its kind, name or ID, or kind and name such as \"runner eu-1\"")
	cmd.Flags().StringVar(&f.actor, "actor", "", "only changes by this `ACTOR`: the name or ID of a token")
	cmd.Flags().StringVar(&f.since, "since", "", "only changes since this `TIME`: a duration such as 24h, a day, or a time of RFC 3339")
	c.must(cmd.RegisterFlagCompletionFunc("install", c.names(installNames)))
	return cmd
}

// auditChains returns the chains of the org, or those of installs with the name.
func auditChains(ctx context.Context, cl *client.Client, install string) ([]wire.AuditChain, error) {
	var out []wire.AuditChain
	for page, err := range client.Pages(ctx, client.Extent{Page: pageSize}, cl.ListAuditChains) {
		if err != nil {
			return nil, err
		}
		for _, ch := range page.Items {
			if install == "" || ch.Install == install || ch.Chain == install {
				out = append(out, ch)
			}
		}
	}
	return out, nil
}

// eachEntry calls fn for the entries of a chain, newest first, until fn returns false.
func eachEntry(ctx context.Context, cl *client.Client, chain string, fn func(json.RawMessage, wire.AuditEntry) bool) error {
	read := func(ctx context.Context, o client.ListOptions) (wire.Page[json.RawMessage], error) {
		return cl.ListAuditEntries(ctx, chain, o)
	}
	for page, err := range client.Pages(ctx, client.Extent{Page: pageSize}, read) {
		if err != nil {
			return err
		}
		for _, raw := range page.Items {
			var e wire.AuditEntry
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("an entry of chain %s has another form: %w", chain, err)
			}
			if !fn(raw, e) {
				return nil
			}
		}
	}
	return nil
}

func (c *cli) auditExport() *cobra.Command {
	var install, out string
	cmd := &cobra.Command{
		Use: "export", Short: "Export the audit with its signed checkpoints",
		Long: `Writes JSON lines: a header, the public keys of the control plane, the entries of each
chain, and the checkpoints. 'fairlead audit verify' reads the file without a control plane.`,
		Example: `  fairlead audit export --output audit.jsonl
  fairlead audit export --install acme --output acme.jsonl`,
		Args: cobra.NoArgs,
		RunE: c.call(func(ctx context.Context, cl *client.Client, _ []string) error {
			var file bytes.Buffer
			entries, err := export(ctx, cl, install, c.env.Now(), &file)
			if err != nil {
				return err
			}
			if out == "" {
				_, err := io.Copy(c.env.Stdout, &file)
				return err
			}
			if err := safefile.Write(out, file.Bytes(), 0o600); err != nil {
				return usage("Choose a folder that you can write to.", "the export cannot be written: %v", err)
			}
			return c.print(view.Done(exported{out, entries}, "Exported %d entries to %s", entries, out))
		}),
	}
	cmd.Flags().StringVar(&install, "install", "", "only the chain of this install, by `NAME`")
	cmd.Flags().StringVar(&out, "output", "", "write to this `FILE` (default: the standard output)")
	c.must(cmd.RegisterFlagCompletionFunc("install", c.names(installNames)))
	return cmd
}

type exported struct {
	File    string `json:"file"`
	Entries int    `json:"entries"`
}

// export writes an export. It reads the checkpoints first: an entry that is appended meanwhile is newer than the last one.
func export(ctx context.Context, cl *client.Client, install string, now time.Time, to io.Writer) (entries int, err error) {
	about, err := cl.GetAudit(ctx)
	if err != nil {
		return 0, err
	}
	var checkpoints []json.RawMessage
	for page, err := range client.Pages(ctx, client.Extent{Page: pageSize}, cl.ListAuditCheckpoints) {
		if err != nil {
			return 0, err
		}
		checkpoints = append(checkpoints, page.Items...)
	}
	chains, err := auditChains(ctx, cl, install)
	if err != nil {
		return 0, err
	}
	h := audit.Header{Org: about.Org, At: now.UTC(), KeptDays: about.KeptDays}
	if install != "" {
		if len(chains) != 1 {
			return 0, usage("`fairlead audit list` lists the changes of all installs.", "there are %d chains of an install %q; name one by its ID", len(chains), install)
		}
		h.Chain = chains[0].Chain
	}
	var keys []audit.Key
	for _, k := range about.Keys {
		keys = append(keys, audit.Key{ID: k.ID, PublicKey: k.PublicKey})
	}
	w := audit.NewWriter(to, h, keys)
	for _, chain := range chains {
		var all []json.RawMessage
		if err := eachEntry(ctx, cl, chain.Chain, func(raw json.RawMessage, _ wire.AuditEntry) bool { all = append(all, raw); return true }); err != nil {
			return 0, err
		}
		slices.Reverse(all)
		for _, raw := range all {
			w.Entry(raw)
		}
		entries += len(all)
	}
	slices.Reverse(checkpoints)
	for _, raw := range checkpoints {
		w.Checkpoint(raw)
	}
	return entries, w.Err
}

func (c *cli) auditVerify() *cobra.Command {
	var keys []string
	var at, region string
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Verify an export, without a control plane",
		Long: `Verifies the hashes of all entries, and the signatures of the checkpoints. Names each entry
that was changed, dropped or reordered, and the entries that no checkpoint has yet.
Without --key, it trusts the keys in the file: compare the key that it prints with the one
that your runner pinned. With --ledger, it also compares the heads that your runner has
kept: they show another history, even if the vendor signed it. Exit code 3: something was
altered.`,
		Example: `  fairlead audit verify audit.jsonl
  fairlead audit verify audit.jsonl --key 8sZ1bq2k0m0w7mS2Qm1m2f3oC0m5k3m1Qm1m2f3oC0M=`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var o audit.Options
			for _, k := range keys {
				b, err := base64.StdEncoding.DecodeString(k)
				if err != nil || len(b) != ed25519.PublicKeySize {
					return usage("Use a key as the runner's file has it.", "--key %q is no Ed25519 public key in base64", k)
				}
				o.Keys = append(o.Keys, b)
			}
			if at != "" {
				var err error
				if o.Heads, err = c.keptHeads(cmd.Context(), at, region); err != nil {
					return err
				}
			}
			r := c.env.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return usage("", "the export cannot be read: %v", err)
				}
				defer f.Close()
				r = f
			}
			report, err := audit.Verify(r, o)
			if err != nil {
				return usage("Use a file of `fairlead audit export`.", "%s is no export: %v", args[0], err)
			}
			if err := c.print(view.AuditReport{Report: report}); err != nil {
				return err
			}
			if len(report.Findings) > 0 {
				return &failure{code: exitFailed} // the printed report has them
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&at, "ledger", "", "compare the heads in this `LEDGER` of the agent's file")
	cmd.Flags().StringVar(&region, "region", "", "AWS `REGION` of the ledger's bucket; default: that of this process")
	cmd.Flags().StringArrayVar(&keys, "key", nil, "trust only this public `KEY` of the control plane, in base64; can be repeated")
	return cmd
}

// keptHeads returns the heads that the runner has kept in its ledger.
func (c *cli) keptHeads(ctx context.Context, at, region string) ([]audit.KnownHead, error) {
	l, err := c.openLedger(ctx, at, region)
	if err != nil {
		return nil, err
	}
	kept, err := record.Heads(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("read the ledger %s: %w", at, err)
	}
	heads := make([]audit.KnownHead, len(kept))
	for i, h := range kept {
		heads[i] = audit.KnownHead{Head: audit.Head{Chain: h.Chain, N: h.N, Hash: h.Hash}, At: h.At}
	}
	return heads, nil
}

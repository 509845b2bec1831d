package cli

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/approval"
)

func (c *cli) keys() *cobra.Command {
	return noun("keys", "List, rotate and revoke signing keys, for operators",
		`A runner runs only jobs that a key of the control plane signed. It trusts two keys: one signs
jobs, and the spare key signs each change of the keys. So installed runners follow a change
at their next job. After a rotation a third key is valid: the one that signed before.`,
		c.keysList(), c.keysRotate(), c.keysRevoke())
}

func (c *cli) keysList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the keys that runners trust",
		Long:    "Lists the keys that runners trust, and what each signs.",
		Example: "  fairlead keys list",
		Args:    cobra.NoArgs,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			keys, err := cl.ListKeys(ctx)
			return view.SigningKeys(keys), err
		}),
	}
}

// elsewhere are the flags for keys that the control plane does not have.
type elsewhere struct {
	with []string
	next string
}

func (e *elsewhere) register(c *cli, cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&e.with, "sign-with", nil, "sign the change with this `KEY`: a file with a private key in PEM, or awskms:ARN")
	cmd.Flags().StringVar(&e.next, "new-key", "", "the `KEY` that the change adds: a file with its private key in PEM, or awskms:ARN")
	c.must(cmd.MarkFlagFilename("sign-with"))
	c.must(cmd.MarkFlagFilename("new-key"))
}

const elsewhereHelp = `
A control plane on AWS cannot use its spare key. Name the key with --sign-with, and the key
that the change adds with --new-key. Your own AWS credentials sign the change. The first
change of a control plane is also signed by the key that signs jobs: give --sign-with twice.`

func (c *cli) keysRotate() *cobra.Command {
	var e elsewhere
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace the key that signs jobs",
		Long: `Makes a new key that signs jobs. The key that signed until now remains valid until you revoke
it. Runners need no change: they follow at their next job.
` + elsewhereHelp,
		Example: "  fairlead keys rotate\n  fairlead keys rotate --sign-with awskms:ARN_OF_SPARE --sign-with awskms:ARN_OF_FIRST --new-key awskms:ARN_OF_NEW",
		Args:    cobra.NoArgs,
		RunE: c.shows(func(ctx context.Context, cl *client.Client, _ []string) (view.Document, error) {
			keys, err := c.changeKeys(ctx, cl, e, cl.RotateKeys, func(s events.KeySet, next ed25519.PublicKey) (events.KeySet, error) {
				if next == nil {
					return s, usage("", "name the key that will sign jobs with --new-key")
				}
				return s.Rotated(next, c.env.Now())
			})
			return view.Rotated(keys), err
		}),
	}
	e.register(c, cmd)
	return cmd
}

func (c *cli) keysRevoke() *cobra.Command {
	var e elsewhere
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke KEY", Short: "Remove a key from those that runners trust",
		Long: `Removes a key from those that runners trust. A new key takes its place, unless it only signed
before. Components that a build made while the key signed are refused afterwards: publish
their apps again.
` + elsewhereHelp,
		Example: "  fairlead keys revoke 5f1c0a9e3b7d2468",
		RunE: c.shows(func(ctx context.Context, cl *client.Client, args []string) (view.Document, error) {
			if err := c.confirm(ctx, yes, args[0], "Runners will refuse all that key %s signed.", args[0]); err != nil {
				return nil, err
			}
			revoke := func(ctx context.Context) (wire.Keys, error) { return cl.RevokeKey(ctx, args[0]) }
			keys, err := c.changeKeys(ctx, cl, e, revoke, func(s events.KeySet, next ed25519.PublicKey) (events.KeySet, error) {
				if next == nil && s.NeedsKey(args[0]) {
					return s, usage("", "another key takes the place of key %s: name it with --new-key", args[0])
				}
				return s.Revoked(args[0], next, c.env.Now())
			})
			return view.Done(keys, "Runners do not trust key %s any more", args[0]), err
		}),
	}
	e.register(c, cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// changeKeys lets the control plane change its keys, or signs the change with the keys of the flags.
func (c *cli) changeKeys(ctx context.Context, cl *client.Client, e elsewhere, there func(context.Context) (wire.Keys, error), next func(events.KeySet, ed25519.PublicKey) (events.KeySet, error)) (wire.Keys, error) {
	if len(e.with) == 0 {
		if e.next != "" {
			return wire.Keys{}, usage("", "--new-key needs --sign-with: this control plane makes the new key itself")
		}
		return there(ctx)
	}
	var added ed25519.PublicKey
	var err error
	if e.next != "" {
		if _, added, err = c.signingKey(ctx, e.next); err != nil {
			return wire.Keys{}, err
		}
	}
	var signers []*events.Signer
	var given []ed25519.PublicKey
	for _, ref := range e.with {
		key, public, err := c.signingKey(ctx, ref)
		if err != nil {
			return wire.Keys{}, err
		}
		signers, given = append(signers, events.NewRemoteSigner(public, key.Sign)), append(given, public)
	}
	keys, err := cl.ListKeys(ctx)
	if err != nil {
		return wire.Keys{}, err
	}
	set, err := vouchedSet(ctx, keys, given)
	if err != nil {
		return wire.Keys{}, err
	}
	change, err := next(set, added)
	if err != nil {
		return wire.Keys{}, err
	}
	envelope, err := events.SignKeySet(ctx, change, signers...)
	if err != nil {
		return wire.Keys{}, err
	}
	return cl.PutKeySet(ctx, wire.PutKeySetRequest{Envelope: envelope})
}

// vouchedSet returns the key set that the control plane shows. It refuses a key that is not among those given, and that none of them
// signed: a hostile control plane could show its own key, and the person would sign it.
func vouchedSet(ctx context.Context, keys wire.Keys, given []ed25519.PublicKey) (events.KeySet, error) {
	var chain [][]byte
	for _, c := range keys.Changes {
		chain = append(chain, c)
	}
	vouched := append(events.Vouched(ctx, chain, given), given...)
	var shown []ed25519.PublicKey
	for _, k := range keys.Keys {
		key := ed25519.PublicKey(k.PublicKey)
		if !slices.ContainsFunc(vouched, func(v ed25519.PublicKey) bool { return v.Equal(key) }) {
			return events.KeySet{}, usage("Name this key, too, with --sign-with.", "the control plane shows key %s, which no key of --sign-with has signed", k.ID)
		}
		shown = append(shown, key)
	}
	set := events.FirstKeySet(shown...)
	set.Number = keys.Number
	return set, nil
}

// signingKey opens a key of --sign-with or --new-key.
func (c *cli) signingKey(ctx context.Context, ref string) (approval.Signer, ed25519.PublicKey, error) {
	key, err := c.approvalKey(ctx, ref)
	if err != nil {
		return nil, nil, fmt.Errorf("open the key %s: %w", ref, err)
	}
	public, ok := key.Public().Ed25519()
	if !ok {
		return nil, nil, usage("", "the key %s is not an Ed25519 key", ref)
	}
	return key, public, nil
}

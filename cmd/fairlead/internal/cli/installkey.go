package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/profile"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/jobvalues"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/pkg/safefile"
)

// seedFile is the name of the file with the seed in the data folder of a runner's agent.
const seedFile = "install-key.seed"

// maxSeedFile is the largest size of a file with seeds, in bytes.
const maxSeedFile = 4 << 10

// keyFlag adds --key-file.
func keyFlag(c *cli, cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "key-file", "", "the `FILE` with the seed of the runner's install keys, which only the customer has (default: $"+profile.EnvKeyFile+", or the seed of the runner of 'fairlead dev')")
	c.must(cmd.MarkFlagFilename("key-file"))
}

// ring returns the keys of an install from the seed that this person has. It is zero if no seed is known.
func (c *cli) ring(cl *client.Client, flag string, install fairlead.InstallID) (installkey.Ring, error) {
	file, err := profile.KeyFile(flag, c.env.Getenv, cl.URL())
	if err != nil || file == "" {
		return installkey.Ring{}, err
	}
	seeds, err := safefile.Read(file, maxSeedFile)
	if errors.Is(err, fs.ErrNotExist) && flag == "" && c.env.Getenv(profile.EnvKeyFile) == "" {
		return installkey.Ring{}, nil // the runner beside the control plane is older than install keys
	}
	if err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = e.Err
		}
		return installkey.Ring{}, usage("Name the file install-key.seed of the runner's data folder, or a copy of the seed.", "the key file %s cannot be read: %v", file, err)
	}
	ring, err := installkey.NewRing(string(seeds), install)
	if err != nil {
		return installkey.Ring{}, usage("Name the file install-key.seed of the runner's data folder, or a copy of the seed.", "the key file %s is not valid: %v", file, err)
	}
	return ring, nil
}

// openOutputs opens the encrypted outputs of an install with the seed that this person has. It reports the outputs that only
// others can show.
func (c *cli) openOutputs(ctx context.Context, cl *client.Client, install, flag string, o wire.Outputs) error {
	var closed []string
	var ring installkey.Ring
	read := false
	for component, outputs := range o.Components {
		for name, output := range outputs {
			if output.Encrypted == nil {
				continue
			}
			if !read {
				in, err := cl.GetInstall(ctx, install)
				if err != nil {
					return err
				}
				if ring, err = c.ring(cl, flag, fairlead.InstallID(in.ID)); err != nil {
					return err
				}
				read = true
			}
			if ring.IsZero() {
				closed = append(closed, component+"."+name)
				continue
			}
			value, err := ring.OpenOwn(jobvalues.OutputPlace(component, name), output.Encrypted.Bytes)
			if err != nil {
				return err
			}
			output.Value, output.Encrypted = value, nil
			outputs[name] = output
		}
	}
	slices.Sort(closed)
	if len(closed) > 0 {
		return &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeInstallKeyMissing,
			Message: "only the customer's side can read the outputs " + strings.Join(closed, ", ") + ": they are encrypted with the key of the install",
			Hint:    "Ask the customer to run this command with --key-file FILE. FILE has the seed of the runner's install keys, which must not leave the customer's side."}
	}
	return nil
}

// keyWait is how long the command waits for the key of a new install: an agent that runs reports it within a second.
const keyWait = 30 * time.Second

// setEncrypted sets sensitive inputs of an install, and those that the app generates and the install does not have. It encrypts them
// with the key of the install, and waits for the key if the runner has not reported it yet. If it turns out that the runner has no
// seed, the control plane seals them. The other inputs of change are set too.
func (c *cli) setEncrypted(ctx context.Context, cl *client.Client, install string, change wire.UpdateInstallRequest, secrets map[string]json.RawMessage, accept bool) (wire.Install, error) {
	in, err := awaitKey(ctx, cl, install)
	if err != nil {
		return in, err
	}
	if in.Key == nil {
		if _, err := c.mustEncrypt(cl, in); err != nil {
			return in, err
		}
		change.Inputs = maps.Clone(change.Inputs)
		if change.Inputs == nil {
			change.Inputs = map[string]json.RawMessage{}
		}
		maps.Copy(change.Inputs, secrets)
		return cl.UpdateInstall(ctx, install, change)
	}
	a, err := cl.GetApp(ctx, in.App)
	if err != nil {
		return in, err
	}
	all := maps.Clone(secrets)
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	for _, decl := range a.Version.Inputs {
		if _, has := in.Inputs[decl.Name]; !has && decl.GeneratedLength > 0 && all[decl.Name] == nil {
			text := appspec.Input{Generate: decl.GeneratedLength}.Generated(pick)
			if all[decl.Name], err = json.Marshal(text); err != nil {
				return in, err
			}
		}
	}
	key, err := c.trustedKey(cl, in, accept)
	if err != nil {
		return in, err
	}
	change.Encrypted = map[string]wire.Encrypted{}
	for name, raw := range all {
		e, err := jobvalues.Encrypt(key.Seal, jobvalues.InputPlace(name), raw, nil)
		if err != nil {
			return in, err
		}
		change.Encrypted[name] = wire.Encrypted{Bytes: e.Encrypted, Type: e.Type, Size: e.Size}
	}
	return cl.UpdateInstall(ctx, install, change)
}

// pick returns a random number in [0, n) from the system's source of randomness.
func pick(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		panic(err) // crypto/rand.Reader never fails
	}
	return int(i.Int64())
}

// awaitKey returns the install after its runner has reported the key of the install, or that it has no seed.
func awaitKey(ctx context.Context, cl *client.Client, install string) (in wire.Install, err error) {
	pauses := retry.Policy{First: 50 * time.Millisecond, Longest: 2 * time.Second, Within: keyWait}
	pending := errors.New("the key is not known yet")
	err = retry.Run(ctx, pauses, func(ctx context.Context) error {
		if in, err = cl.GetInstall(ctx, install); err == nil && in.Key == nil && in.KeyExpected {
			return pending
		}
		return err
	})
	if errors.Is(err, pending) {
		return in, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeInstallKeyMissing,
			Message: fmt.Sprintf("the runner has not reported the key of install %s, so its secrets are not set", install),
			Hint:    fmt.Sprintf("When an agent of the runner is online, set them with `fairlead install update %s`, and variables with `fairlead variable set`.", install)}
	}
	return in, err
}

// trustedKey returns the key with which this person encrypts secrets of the install. The first key that the person uses is stored, and
// another key later is refused, because the control plane could have put its own key in place of the customer's. accept stores the
// newest key in its place.
func (c *cli) trustedKey(cl *client.Client, in wire.Install, accept bool) (installkey.Public, error) {
	newest := in.Key
	if in.Key.Changed != nil {
		newest = in.Key.Changed
	}
	pinned, err := profile.PinnedKey(c.env.Getenv, cl.URL(), in.ID)
	if err != nil {
		return installkey.Public{}, err
	}
	switch use := newest.PublicKey; {
	case pinned == "" && in.Key.Changed == nil, accept && pinned != use:
		key, err := installkey.ParsePublic(use)
		if err != nil {
			return key, err
		}
		if err := profile.PinKey(c.env.Getenv, cl.URL(), in.ID, use); err != nil {
			return key, err
		}
		c.say("Secrets of install %s are encrypted with the key %s.", in.Name, key.Fingerprint())
		return key, nil
	case pinned == use:
		return installkey.ParsePublic(use)
	}
	return installkey.Public{}, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeInstallKeyChanged,
		Message: fmt.Sprintf("the key of install %s has changed to %s, so no secret was set", in.Name, newest.Fingerprint),
		Hint:    "Ask the customer whether `fairlead-runner install-key show` prints this fingerprint. If it does, run the command again with --accept-new-key. If it does not, another program wants to read the secrets."}
}

// mustEncrypt reports whether this person encrypts the secrets of an install: it has a key, or gets one. An install whose runner's stack
// is not installed gets no secret, and neither does a control plane that shows no key for an install whose key this person has used
// before.
func (c *cli) mustEncrypt(cl *client.Client, in wire.Install) (bool, error) {
	if in.Key != nil || in.KeyExpected {
		return true, nil
	}
	if awaitsStack(in) {
		return false, &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeInstallKeyMissing,
			Message: fmt.Sprintf("install %s has no key yet, because its runner's stack is not installed, so no secret was set", in.Name),
			Hint:    fmt.Sprintf("Run `fairlead install stack %s --wait`, and then this command again.", in.Name)}
	}
	pinned, err := profile.PinnedKey(c.env.Getenv, cl.URL(), in.ID)
	if err != nil || pinned == "" {
		return false, err
	}
	return false, &fairlead.Error{Kind: fairlead.KindForbidden, Code: fairlead.CodeInstallKeyChanged,
		Message: fmt.Sprintf("the control plane shows no key for install %s, and its secrets were encrypted before, so no secret was set", in.Name),
		Hint:    "Ask the operator of the control plane why the key is missing. After a restore from a backup, the next job of the install reports the key again."}
}

// keyOf returns the key with which this person encrypts secrets of an install, or nil if the control plane may read them. It waits for
// a key that is expected.
func (c *cli) keyOf(ctx context.Context, cl *client.Client, install string, accept bool) (*installkey.Public, error) {
	in, err := cl.GetInstall(ctx, install)
	if err != nil {
		return nil, err
	}
	if must, err := c.mustEncrypt(cl, in); err != nil || !must {
		return nil, err
	}
	if in.Key == nil {
		if in, err = awaitKey(ctx, cl, install); err != nil || in.Key == nil {
			return nil, err
		}
	}
	key, err := c.trustedKey(cl, in, accept)
	return &key, err
}

// acceptFlag adds --accept-new-key.
func acceptFlag(cmd *cobra.Command, accept *bool) {
	cmd.Flags().BoolVar(accept, "accept-new-key", false, "encrypt secrets with a key of the install that has changed; compare its fingerprint with the customer first")
}

// encryptVariables encrypts the sensitive variables of a request, if the install has a key or gets one.
func (c *cli) encryptVariables(ctx context.Context, cl *client.Client, install string, change wire.SetVariablesRequest, accept bool) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(change.Values)), func(v *wire.Variable) bool { return v != nil && v.Sensitive }) {
		return nil
	}
	key, err := c.keyOf(ctx, cl, install, accept)
	if err != nil || key == nil {
		return err
	}
	for name, v := range change.Values {
		if v == nil || !v.Sensitive {
			continue
		}
		raw, err := json.Marshal(v.Value)
		if err != nil {
			return err
		}
		e, err := jobvalues.Encrypt(key.Seal, jobvalues.VariablePlace(name), raw, nil)
		if err != nil {
			return err
		}
		change.Values[name] = &wire.Variable{Sensitive: true, Encrypted: &wire.Encrypted{Bytes: e.Encrypted, Type: e.Type, Size: e.Size}}
	}
	return nil
}

// splitSecrets returns the values of sensitive inputs, and the other ones. A null, which resets an input, is no secret.
func splitSecrets(declared []wire.AppInput, values map[string]json.RawMessage) (secrets, others map[string]json.RawMessage) {
	secrets, others = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for name, raw := range values {
		if string(raw) != "null" && slices.ContainsFunc(declared, func(in wire.AppInput) bool { return in.Name == name && in.Sensitive }) {
			secrets[name] = raw
		} else {
			others[name] = raw
		}
	}
	return secrets, others
}

// createInstall creates an install without its secret inputs, and returns them for setSecrets: only the created install shows whether
// its runner has a seed, so a request with the secrets before that would show them to a control plane that may not read them.
func (c *cli) createInstall(ctx context.Context, cl *client.Client, in wire.CreateInstallRequest) (made wire.Install, secrets map[string]json.RawMessage, err error) {
	if len(in.Inputs) > 0 {
		a, err := cl.GetApp(ctx, in.App)
		if err != nil {
			return wire.Install{}, nil, err
		}
		secrets, in.Inputs = splitSecrets(a.Version.Inputs, in.Inputs)
	}
	made, err = cl.CreateInstall(ctx, in)
	return made, secrets, err
}

// setSecrets sets the secret inputs of a created install. Without any it does nothing: the first deployment makes generated inputs.
func (c *cli) setSecrets(ctx context.Context, cl *client.Client, made wire.Install, secrets map[string]json.RawMessage) (wire.Install, error) {
	if len(secrets) == 0 {
		return made, nil
	}
	made, err := cl.GetInstall(ctx, made.Name)
	if err != nil {
		return made, err
	}
	return c.updateInstall(ctx, cl, made, wire.UpdateInstallRequest{Inputs: secrets}, false)
}

// awaitsStack reports whether the customer has not made the stack of the install's runner. The stack makes the seed, so there is no key
// of the install before.
func awaitsStack(in wire.Install) bool {
	return in.Key == nil && !in.KeyExpected && (in.Stack == stackWaiting || in.Stack == stackExpired)
}

// updateInstall changes an install. It encrypts secret inputs if the install has a key, or gets one.
func (c *cli) updateInstall(ctx context.Context, cl *client.Client, current wire.Install, change wire.UpdateInstallRequest, accept bool) (wire.Install, error) {
	must, refused := c.mustEncrypt(cl, current)
	if !must && refused == nil || len(change.Inputs) == 0 {
		out, err := cl.UpdateInstall(ctx, current.Name, change)
		if !client.HasCode(err, fairlead.CodeInputNotEncrypted) {
			return out, err
		}
		// An agent has reported the seed of the runner meanwhile, such as the first one of a control plane that has just started.
	}
	a, err := cl.GetApp(ctx, current.App)
	if err != nil {
		return current, err
	}
	var secrets map[string]json.RawMessage
	if secrets, change.Inputs = splitSecrets(a.Version.Inputs, change.Inputs); len(secrets) == 0 {
		return cl.UpdateInstall(ctx, current.Name, change)
	}
	if refused != nil {
		return current, refused
	}
	return c.setEncrypted(ctx, cl, current.Name, change, secrets, accept)
}

// createDeployment creates a deployment. It first makes the secret inputs that the app generates, if the control plane must not.
func (c *cli) createDeployment(ctx context.Context, cl *client.Client, install string, in wire.CreateDeploymentRequest) (wire.Deployment, error) {
	d, err := cl.CreateDeployment(ctx, install, in)
	if !client.HasCode(err, fairlead.CodeInputNotGenerated) {
		return d, err
	}
	if _, err := c.setEncrypted(ctx, cl, install, wire.UpdateInstallRequest{}, nil, false); err != nil {
		return d, err
	}
	return cl.CreateDeployment(ctx, install, in)
}

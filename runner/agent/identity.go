package agent

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/transport"
)

const (
	keyFile      = "identity.key"
	identityFile = "identity.json"
	lockFile     = "lock"
)

// identity is the runner's identity and its proof. The proof is a key that the runner registered when
// it enrolled, the AWS role of the process, or a token of the platform. Later responses of the control
// plane never replace these values.
type identity struct {
	V        int                    `json:"v"` // 1
	URL      string                 `json:"url"`
	Name     string                 `json:"runner"`
	RunnerID fairlead.RunnerID      `json:"runner_id"`
	Keys     []wire.VerificationKey `json:"keys"` // verify job specs
	Registry string                 `json:"registry"`

	key       ed25519.PrivateKey
	role      *role      // instead of key
	federated *federated // in addition to key
}

// loadIdentity returns the identity that cfg.Identity selects: the process's AWS role, the
// platform's OIDC token, or the key in the data folder. Without a key it enrols. Enrolling may be
// repeated after a crash at any time: the agent writes the key to disk before it sends the token, and
// the control plane accepts the same token with the same key again.
func loadIdentity(ctx context.Context, cfg config.Runner, o Options, log *slog.Logger) (identity, error) {
	switch cfg.Identity {
	case "", "key":
	case "aws-iam":
		return roleIdentity(ctx, cfg, o)
	case "oidc":
		return federatedIdentity(cfg, o)
	default:
		return identity{}, fmt.Errorf("FAIRLEAD_IDENTITY: %q is not a kind of identity. Use key, aws-iam or oidc", cfg.Identity)
	}
	var id identity
	b, err := os.ReadFile(filepath.Join(cfg.Data, identityFile))
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &id); err != nil || id.V != 1 || id.RunnerID == "" || len(id.Keys) == 0 {
			return identity{}, fmt.Errorf("%s in %s is damaged; remove it and give a new enrolment token", identityFile, cfg.Data)
		}
		if id.key, err = readKey(cfg.Data); err != nil {
			return identity{}, err
		}
		if cfg.URL != "" {
			id.URL = strings.TrimSuffix(cfg.URL, "/") // the control plane's address may have changed; its keys may not
		}
		return id, nil
	case !errors.Is(err, fs.ErrNotExist):
		return identity{}, fmt.Errorf("read the runner's identity: %w", err)
	}
	token, err := enrolmentToken(cfg)
	if err != nil {
		return identity{}, err
	}
	if id.key, err = readKey(cfg.Data); errors.Is(err, fs.ErrNotExist) {
		id.key, err = makeKey(cfg.Data)
	}
	if err != nil {
		return identity{}, err
	}
	return enrol(ctx, cfg, token, id.key, o, log)
}

func enrolmentToken(cfg config.Runner) (string, error) {
	if cfg.URL == "" {
		return "", errors.New("this runner has not enrolled and does not know its control plane: set FAIRLEAD_URL")
	}
	if cfg.EnrolmentToken != "" {
		return cfg.EnrolmentToken, nil
	}
	if cfg.EnrolmentTokenFile == "" {
		return "", errors.New("this runner has not enrolled: set FAIRLEAD_ENROLMENT_TOKEN or FAIRLEAD_ENROLMENT_TOKEN_FILE")
	}
	b, err := os.ReadFile(cfg.EnrolmentTokenFile)
	if err != nil {
		return "", fmt.Errorf("read the enrolment token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("the enrolment token file %s is empty", cfg.EnrolmentTokenFile)
	}
	return token, nil
}

func enrol(ctx context.Context, cfg config.Runner, token string, key ed25519.PrivateKey, o Options, log *slog.Logger) (identity, error) {
	c, err := newClient(cfg.URL, o)
	if err != nil {
		return identity{}, err
	}
	onChange := &change{log: log}
	pauses := patient(o)
	pauses.Passing = func(err error) bool { return !client.Refused(err) }
	busy := newOverload(o.random(), time.Now)
	e, err := retry.Do(ctx, pauses, func(ctx context.Context) (wire.Enrolled, error) {
		if err := busy.wait(ctx); err != nil {
			return wire.Enrolled{}, err
		}
		e, err := c.Enrol(ctx, wire.EnrolRequest{Token: token, PublicKey: key.Public().(ed25519.PublicKey)})
		busy.note(err)
		if !client.Refused(err) {
			onChange.error("cannot enrol yet", err)
		}
		return e, err
	})
	if err != nil {
		return identity{}, fmt.Errorf("enrol at %s: %w", cfg.URL, err)
	}
	id := identity{V: 1, URL: strings.TrimSuffix(cfg.URL, "/"), Name: e.Runner, RunnerID: fairlead.RunnerID(e.RunnerID),
		Keys: e.Keys, Registry: e.Registry, key: key}
	if len(id.Keys) == 0 || id.RunnerID == "" {
		return identity{}, fmt.Errorf("enrol at %s: the response has no runner ID or no key to verify job specs", cfg.URL)
	}
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return identity{}, fmt.Errorf("encode the runner's identity: %w", err)
	}
	if err := safefile.Write(filepath.Join(cfg.Data, identityFile), b, 0o600); err != nil {
		return identity{}, fmt.Errorf("write the runner's identity: %w", err)
	}
	log.Info("enrolled", "runner", id.Name, "runner_id", id.RunnerID, "pinned_key", id.Keys[0].ID)
	return id, nil
}

func readKey(data string) (ed25519.PrivateKey, error) {
	b, err := os.ReadFile(filepath.Join(data, keyFile))
	if err != nil {
		return nil, fmt.Errorf("read the runner's key: %w", err)
	}
	if block, _ := pem.Decode(b); block != nil {
		if k, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if key, ok := k.(ed25519.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, fmt.Errorf("%s in %s is damaged; remove it and %s, and give a new enrolment token", keyFile, data, identityFile)
}

func makeKey(data string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the runner's key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the runner's key: %w", err)
	}
	b := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := safefile.Write(filepath.Join(data, keyFile), b, 0o600); err != nil {
		return nil, fmt.Errorf("write the runner's key: %w", err)
	}
	return key, nil
}

func newClient(url string, o Options) (*client.Client, error) {
	co := client.Options{UserAgent: "fairlead-runner/" + o.Version, Retries: -1, PlainHTTP: o.plainHTTP} // the loops here retry
	if o.Transport != nil {
		co.HTTP = &http.Client{Transport: o.Transport}
	}
	c, err := client.New(url, "", co)
	if _, plain := errors.AsType[*transport.PlainError](err); plain {
		return nil, fmt.Errorf("%w. Use https://, with FAIRLEAD_CA_FILE if the certificate is the vendor's own; on a network that you trust, FAIRLEAD_ALLOW_PLAIN_HTTP=true allows http://", err)
	}
	return c, err
}

// patient returns the retry policy for requests that no caller waits for.
func patient(o Options) retry.Policy {
	return retry.Policy{First: 200 * time.Millisecond, Longest: 15 * time.Second, Random: o.Random}
}

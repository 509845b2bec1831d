package terraform

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/attempt"
	"github.com/fairlead/fairlead/runner/internal/confine"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/plugin/internal/plane"
	"github.com/fairlead/fairlead/runner/plugin/planstore"
)

// storage stores the state and the saved plans.
type storage interface {
	// backend returns the configuration of the tool's backend.
	backend() backend
	// env returns the variables of this job that the backend needs.
	env() map[string]string
	// reach returns the files of this machine that the tool needs to access for this storage.
	reach() confine.Own
	// readState returns the state, or nil if there is none. It retries until ctx ends. The error is errThroughTool if only
	// the tool can read the state.
	readState(ctx context.Context) ([]byte, error)
	// synced makes the state durable after the tool has written it.
	synced() error
	// saved returns the store of saved plans.
	saved() planstore.Store
}

// isKey reports whether s is a valid state key: <install id>/<component>.
func isKey(s string) bool {
	install, component, ok := strings.Cut(s, "/")
	return ok && attempt.CheckID(install) == nil && attempt.CheckID(component) == nil
}

// openStorage returns the storage of a state. link is the name in the workspace of the link to a local state's folder. The
// tool runs in j's source folder, or in a slot if j has no source folder.
func (p *Plugin) openStorage(j *job, ref events.StateRef, link string) (storage, error) {
	b, err := backendOf(ref, forState)
	if err != nil {
		return nil, err
	}
	switch ref.Storage {
	case storageLocal:
		folder := filepath.Join(p.cfg.Data, "state")
		if ref.In != nil && ref.In.Folder != "" {
			if folder = ref.In.Folder; !filepath.IsAbs(folder) {
				return nil, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec's state folder %q is not absolute", folder)
			}
		}
		b.config["path"] = cmp.Or(j.toWorkspace, "..") + "/" + link + "/terraform.tfstate"
		s := &local{conf: b, folder: folder, dir: filepath.Join(folder, ref.Key), plans: planstore.OnDisk(p.cfg.Data)}
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the folder of the state: %w", err)
		}
		if err := os.Symlink(s.dir, j.path(link)); err != nil {
			return nil, fmt.Errorf("create the workspace: %w", err)
		}
		return s, nil
	case storageHTTP:
		if !strings.HasPrefix(ref.Path, "/") || strings.Contains(ref.Path, "..") || strings.ContainsAny(ref.Path, "?#@\\ ") {
			return nil, plugin.Errorf(fairlead.ReasonSpecInvalid, "the job spec's state path %q is not below the control plane's URL", ref.Path)
		}
		s := &remote{conf: b, client: j.env.Control, token: j.env.StateToken, path: ref.Path, job: string(j.spec.Job), ca: p.cfg.CA,
			vault: newVault(j.env.Keys, ref.Key, j.spec.Operation, j.env.Log)}
		j.vaults = append(j.vaults, s.vault)
		if s.client.MaxBody() > 0 || !j.env.Keys.IsZero() {
			if s.relay, err = startRelay(s.client, s.job, s.path, s.vault, j.env.Log); err != nil {
				return nil, err
			}
			j.relays = append(j.relays, s.relay)
		}
		return s, nil
	}
	return j.external(ref, b)
}

// local is storage on the runner's disk.
type local struct {
	conf   backend
	folder string // the folder of all states
	dir    string // the folder of this state
	plans  *planstore.Disk
}

func (s *local) backend() backend { return s.conf }

func (*local) env() map[string]string { return nil }

func (s *local) reach() confine.Own {
	return confine.Own{Write: []string{s.dir}, Private: []string{s.folder}}
}

func (s *local) readState(context.Context) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, "terraform.tfstate"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// synced syncs the state's folder, so that a new state file survives a power cut: the tools sync only its content.
func (s *local) synced() error { return safefile.SyncFolder(s.dir) }

func (s *local) saved() planstore.Store { return s.plans }

// remote is storage in the control plane.
type remote struct {
	conf   backend
	client *client.Client
	token  string // password of the tool for the state
	path   string // path of the state, relative to the control plane's URL
	job    string
	ca     string // the CA of the control plane's certificate, in PEM; "": the machine's CAs
	vault  *vault
	relay  *relay // nil: the control plane accepts every state in one request and the runner has no key, so the tool calls it directly
}

func (s *remote) backend() backend { return s.conf }

func (*remote) reach() confine.Own { return confine.Own{} }

// env has the address of the state and the credential for it: the password of the relay, or the job's token for its state. The
// control plane refuses the token as soon as another attempt owns the job.
func (s *remote) env() map[string]string {
	base, password := s.client.URL(), s.token
	if s.relay != nil {
		base, password = s.relay.url, s.relay.password
	}
	url := base + s.path
	env := map[string]string{
		"TF_HTTP_ADDRESS":        url,
		"TF_HTTP_LOCK_ADDRESS":   url + "/lock",
		"TF_HTTP_UNLOCK_ADDRESS": url + "/lock",
		"TF_HTTP_LOCK_METHOD":    http.MethodPut,
		"TF_HTTP_UNLOCK_METHOD":  http.MethodDelete,
		"TF_HTTP_USERNAME":       s.job,
		"TF_HTTP_PASSWORD":       password,
		"TF_HTTP_RETRY_MAX":      "6", // waits 1, 2, 4, … s: outlasts a restart of the control plane
		"TF_HTTP_RETRY_WAIT_MIN": "1",
	}
	if s.relay != nil {
		// The relay repeats the requests. If it is gone, its step is dead: the tool must write its copy of the state before
		// the agent kills it.
		env["TF_HTTP_RETRY_MAX"] = "1"
	}
	if s.ca != "" && s.relay == nil {
		env["TF_HTTP_CLIENT_CA_CERTIFICATE_PEM"] = s.ca
	}
	return env
}

// The timeouts of one request, with its parts. A state of one request has a few MiB at most.
const (
	readRequestTimeout  = 30 * time.Second
	partsRequestTimeout = 2 * time.Minute
)

func (s *remote) readState(ctx context.Context) ([]byte, error) {
	within := readRequestTimeout
	if s.relay != nil {
		within = partsRequestTimeout // the state may come in many parts
	}
	b, err := plane.Ask(ctx, 0, within, func(ctx context.Context) ([]byte, error) { return s.client.GetState(ctx, s.job, s.path) })
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	if b == nil {
		return nil, nil
	}
	return s.vault.open(b)
}

func (*remote) synced() error { return nil }

func (s *remote) saved() planstore.Store { return planstore.InPlane(s.client, s.job) }

// outputValue is an output in a state.
type outputValue struct {
	Value     json.RawMessage `json:"value"`
	Sensitive bool            `json:"sensitive"`
}

// errThroughTool reports that only the tool can read the state: it is encrypted, has an unknown version, or is in a storage
// that only the tool can access.
var errThroughTool = errors.New("only the tool can read the state")

// outputsOf reads the outputs in a state of version 4, which every OpenTofu and every Terraform since 0.12 writes.
func outputsOf(state []byte) (map[string]outputValue, error) {
	if len(state) == 0 {
		return map[string]outputValue{}, nil
	}
	var st struct {
		Version int                    `json:"version"`
		Outputs map[string]outputValue `json:"outputs"`
	}
	if err := json.Unmarshal(state, &st); err != nil || st.Version != 4 {
		return nil, errThroughTool
	}
	if st.Outputs == nil {
		st.Outputs = map[string]outputValue{}
	}
	return st.Outputs, nil
}

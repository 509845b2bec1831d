// Package attempt defines the folder through which an agent and a step exchange data: the agent
// writes the step's input, and the step writes its results. The folder holds no secret. With it, a
// new agent finds the steps of the previous agent.
//
// A job can change the folder of its step at will: it runs as the same user, and a container sees
// the folder too. So an agent opens only regular files in the folder, and does not trust their
// content. The agent keeps the data that it must trust in its own folder, Kept.
//
// No file is synced to disk. A step does not survive a crash of the machine, so its files do not
// matter after the crash. The lease at the control plane survives.
package attempt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/internal/providers"
)

// TokenVariable is the environment variable with the launch token, or with the token of a warm step. The
// token is a secret, so it is not in Input.
const TokenVariable = "FAIRLEAD_LAUNCH_TOKEN"

// SeedVariable is the environment variable with the seed of the install keys, for a step that does not see the agent's data
// folder. Like the token, it is a secret and not in Input.
const SeedVariable = "FAIRLEAD_INSTALL_KEY_SEED"

// MarkVariable is an environment variable of a step that runs as a process. Every process that the
// step starts inherits it, so the agent finds a process that left the step's session. Code that
// makes a tool's environment must pass it on.
const MarkVariable = "FAIRLEAD_STEP"

// Exit codes of a step. They do not state whether the job succeeded. The finish report states that.
const (
	ExitFinished    = 0 // the control plane has the report
	ExitInternal    = 1 // an error of the step itself; it sent no report
	ExitUsage       = 2 // wrong arguments, or no step folder
	ExitStale       = 3 // another attempt has the lease; the step killed the tool and wrote nothing after the kill
	ExitNotStarted  = 4 // the control plane gave no job spec for the launch token; no tool ran
	ExitUndelivered = 5 // the job has ended, but the control plane did not accept the report
	ExitUnassigned  = 7 // the step was started ahead and got no job
	ExitDiskFull    = 6 // like ExitInternal or ExitUsage: the runner's disk has no space left
)

// Input is the agent's input for a step.
type Input struct {
	V            int                    `json:"v"` // 1
	URL          string                 `json:"url"`
	Registry     string                 `json:"registry"` // host[:port] of the control plane's registry
	Runner       fairlead.RunnerID      `json:"runner"`
	Keys         []wire.VerificationKey `json:"keys"` // pinned at enrolment
	Job          fairlead.JobID         `json:"job"`
	Epoch        int64                  `json:"epoch"`
	Operation    string                 `json:"operation"`
	Plugin       string                 `json:"plugin"`
	Install      string                 `json:"install,omitempty"`
	InstallID    string                 `json:"install_id,omitempty"`
	Component    string                 `json:"component,omitempty"`
	PlanJob      string                 `json:"plan_job,omitempty"` // the job that saved the plan to apply
	Grace        time.Duration          `json:"grace_ns"`
	StartBefore  time.Time              `json:"start_before"`
	Data         string                 `json:"data"` // the runner's data folder
	Tofu         string                 `json:"tofu,omitempty"`
	PluginCache  string                 `json:"plugin_cache,omitempty"`
	Programs     string                 `json:"programs,omitempty"`  // folder of the plugins' programs; "": beside the step's program
	Providers    []providers.Package    `json:"providers,omitempty"` // verified packages in the plugin cache; none if the step does not see the cache
	CLIConfig    string                 `json:"cli_config,omitempty"`
	Mirror       string                 `json:"provider_mirror,omitempty"` // location of the customer's mirror of providers
	PassEnv      []string               `json:"pass_env,omitempty"`
	SecretEnv    []string               `json:"secret_env,omitempty"`     // names of more variables to pass on, like PassEnv; logs never show their values
	Secrets      map[string]string      `json:"secrets,omitempty"`        // references to the customer's secrets, by the names of the agent's file
	InstallKey   string                 `json:"install_key,omitempty"`    // reference to the seed of the install keys; "": in SeedVariable, or there is none
	KeyByDefault bool                   `json:"key_by_default,omitempty"` // a runner in a sandbox does not have the seed
	Policy       string                 `json:"policy,omitempty"`         // reference to the customer's policy, as the step reads it; "": there is none
	Ledger       string                 `json:"ledger,omitempty"`         // location of the customer's ledger; "": there is none
	Work         string                 `json:"work,omitempty"`           // data folder that contains the workspaces; "": Data
	Role         *Role                  `json:"role,omitempty"`           // nil: the tool gets no role
	WholeRoles   bool                   `json:"whole_roles,omitempty"`    // no session policy narrows the role of an apply
	Confined     *Confined              `json:"confined,omitempty"`       // nil: the tool reaches the same files as the step
	CA           string                 `json:"ca,omitempty"`             // CA certificates for the control plane, in PEM; "": those that the machine trusts
	PlainHTTP    bool                   `json:"plain_http,omitempty"`     // allow a control plane on another machine without TLS
	Warm         *Warm                  `json:"warm,omitempty"`           // nil: the job is known at the start
}

// Warm describes a step that is started before its job is known. It waits for its job, and gets only then the fields of
// Input that come from a claim.
type Warm struct {
	ID      string         `json:"id"`
	Role    component.Role `json:"role"`    // of the operations that it can run
	Expires time.Time      `json:"expires"` // it gets no job after this time
}

// WithJob returns the input with the fields of a claim.
func (in Input) WithJob(c wire.Claim) Input {
	in.Job, in.Epoch, in.Operation, in.Plugin = fairlead.JobID(c.Job), c.Epoch, c.Operation, c.Plugin
	in.Install, in.InstallID, in.Component, in.PlanJob = c.Install, c.InstallID, c.Component, c.PlanJob
	in.Grace, in.StartBefore = time.Duration(c.GraceSeconds)*time.Second, c.StartBefore
	return in
}

// Confined lists the files of the machine that the tools of a step can reach in addition to the
// job's own files.
type Confined struct {
	Readable []string `json:"readable,omitempty"`
	Writable []string `json:"writable,omitempty"`
	Private  []string `json:"private"` // excluded from the other two lists
}

// WorkIn returns the data folder that contains the step's workspace.
func (in Input) WorkIn() string { return cmp.Or(in.Work, in.Data) }

// Role is the AWS role of a step's tool.
type Role struct {
	ARN        string `json:"arn"`
	ExternalID string `json:"external_id,omitempty"` // no secret
	Region     string `json:"region,omitempty"`
	Install    string `json:"install,omitempty"` // install ID; becomes a tag of the role session
}

// ID returns the name of an attempt: the job ID and the epoch.
func ID(job fairlead.JobID, epoch int64) string { return fmt.Sprintf("%s-%d", job, epoch) }

// ParseID is the reverse of ID.
func ParseID(id string) (fairlead.JobID, int64, error) {
	i := strings.LastIndexByte(id, '-')
	if i <= 0 {
		return "", 0, fmt.Errorf("%q does not name an attempt", id)
	}
	epoch, err := strconv.ParseInt(id[i+1:], 10, 64)
	if err != nil || epoch < 1 {
		return "", 0, fmt.Errorf("%q does not name an attempt", id)
	}
	return fairlead.JobID(id[:i]), epoch, nil
}

// CheckID refuses an identifier that is not safe as the name of one folder. The control plane
// chooses the identifier, and a runner does not trust the control plane with paths.
func CheckID(job string) error {
	if job == "" || len(job) > 100 || strings.Trim(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return fmt.Errorf("%q is not a job identifier", job)
	}
	return nil
}

// The files of a step folder.
const (
	inputFile    = "step.json"
	finishedFile = "finished"
	renewFile    = "renew"
	logEndFile   = "log-end.json"
	tallyFile    = "tally.json"
	// StdoutFile and StderrFile hold the output of the step's process.
	StdoutFile = "stdout"
	StderrFile = "stderr"
	// LogFile holds the part of the job's log that the step has written, with redacted secrets.
	LogFile = "log"
)

// maxFile is the largest size in bytes of each file, except stdout, stderr and log.
const maxFile = 1 << 20

// Dir is the path of one step's folder.
type Dir string

// Path returns the path of a file in the folder.
func (d Dir) Path(file string) string { return filepath.Join(string(d), file) }

// Create makes the folder, readable only by its owner, and writes the input. It fails if the folder
// exists: an attempt starts only once.
func Create(path string, in Input) (Dir, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make step folder: %w", err)
	}
	b, err := Encode(in)
	if err != nil {
		return "", err
	}
	if err := safefile.Replace(filepath.Join(path, inputFile), b, 0o600); err != nil {
		return "", fmt.Errorf("write the step's input: %w", err)
	}
	return Dir(path), nil
}

// Encode returns the input as JSON, for a step that does not see the agent's folders.
func Encode(in Input) ([]byte, error) {
	in.V = 1
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write the step's input: %w", err)
	}
	return b, nil
}

// Receive makes the folder of a step that runs on another machine than its agent. It writes the input,
// which Encode made, to the folder. It fails if the folder exists: an attempt runs only once.
func Receive(path string, input []byte) (Dir, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make step folder: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make step folder: %w", err)
	}
	if err := safefile.Replace(filepath.Join(path, inputFile), input, 0o600); err != nil {
		return "", fmt.Errorf("write the step's input: %w", err)
	}
	return Dir(path), nil
}

// Input reads the step's input.
func (d Dir) Input() (Input, error) { return readInput(d.Path(inputFile)) }

func readInput(path string) (Input, error) {
	var in Input
	if err := readJSON(path, &in); err != nil {
		return Input{}, fmt.Errorf("read the step's input: %w", err)
	}
	if in.V != 1 {
		return Input{}, fmt.Errorf("the step's input has version %d; this runner supports version 1", in.V)
	}
	return in, nil
}

// MarkFinished records that the control plane accepted the step's report.
func (d Dir) MarkFinished() error { return safefile.Replace(d.Path(finishedFile), nil, 0o600) }

// Finished reports whether MarkFinished was called.
func (d Dir) Finished() bool { return safefile.IsRegular(d.Path(finishedFile)) }

// SaveRenew saves the period between two renewals of the lease. If the step dies, its agent uses the
// period to compute how long the lease still lasts.
func (d Dir) SaveRenew(every time.Duration) error {
	return safefile.Replace(d.Path(renewFile), []byte(every.String()), 0o600)
}

// Renew returns the period that SaveRenew saved, or 0.
func (d Dir) Renew() time.Duration {
	b, err := safefile.Read(d.Path(renewFile), maxFile)
	if err != nil {
		return 0
	}
	every, err := time.ParseDuration(string(b))
	if err != nil {
		return 0
	}
	return max(0, every)
}

// LogEnd marks the end of the log file. The step writes it after the tool's last output.
type LogEnd struct {
	Size      int64 `json:"size"`      // of the file, in bytes
	Truncated bool  `json:"truncated"` // the log reached its size limit, or the disk was full
}

// SaveLogEnd saves the end of the log.
func (d Dir) SaveLogEnd(e LogEnd) error { return writeJSON(d.Path(logEndFile), e) }

// LogEnd returns the end of the log, and whether the log is complete. If the step died before it had a
// log, the log is complete and has 0 bytes. If the step died while the tool ran, or if the log was
// truncated, the log is incomplete.
func (d Dir) LogEnd() (LogEnd, bool) {
	var e LogEnd
	if err := readJSON(d.Path(logEndFile), &e); err == nil {
		return e, !e.Truncated
	}
	_, err := os.Lstat(d.Path(LogFile))
	return LogEnd{}, errors.Is(err, fs.ErrNotExist)
}

// Tally holds a step's counts, for the metrics of its agent.
type Tally struct {
	Outcome  string `json:"outcome"`   // outcome in the report that the control plane accepted
	LogBytes int64  `json:"log_bytes"` // log bytes that the control plane accepted
	Renewals int64  `json:"renewals"`  // renewals of the lease
	Late     int64  `json:"late"`      // renewals after two thirds of the lease
}

// SaveTally saves the step's counts.
func (d Dir) SaveTally(t Tally) error { return writeJSON(d.Path(tallyFile), t) }

// Tally returns the counts that SaveTally saved. It returns the zero value if no counts are saved, or
// if they are invalid: a job can write the file.
func (d Dir) Tally() Tally {
	var t Tally
	if err := readJSON(d.Path(tallyFile), &t); err != nil {
		return Tally{} // missing counts are no error
	}
	switch t.Outcome {
	case "succeeded", "failed", "canceled":
	default:
		return Tally{} // an arbitrary value would create a new time series in the agent's metrics
	}
	if t.LogBytes < 0 || t.Renewals < 0 || t.Late < 0 {
		return Tally{} // a counter never decreases
	}
	return t
}

// Tail returns up to limit bytes from the end of a file in the folder; "" if it cannot be read.
func (d Dir) Tail(file string, limit int64) string {
	f, err := safefile.Open(d.Path(file))
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(0, st.Size()-limit)
	b := make([]byte, st.Size()-from)
	n, _ := f.ReadAt(b, from)
	return strings.ToValidUTF8(string(b[:n]), "\uFFFD")
}

// The files of Kept, in addition to the step's input.
const (
	diedFile          = "died.json"
	configurationFile = "configuration.json"
	overFile          = "over"
	warmFile          = "warm"
)

// Kept is the path of the folder with the agent's own records of an attempt, for itself and for the
// next agent. No step sees it.
type Kept string

// Keep makes the folder, readable only by its owner, and saves the step's input. It fails if the
// folder exists: an attempt starts only once.
func Keep(path string, in Input) (Kept, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of an attempt: %w", err)
	}
	b, err := Encode(in)
	if err == nil {
		err = safefile.Replace(filepath.Join(path, inputFile), b, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("keep the step's input: %w", err)
	}
	return Kept(path), nil
}

func (k Kept) path(file string) string { return filepath.Join(string(k), file) }

// Input returns the step's input.
func (k Kept) Input() (Input, error) { return readInput(k.path(inputFile)) }

// SaveDied saves the report of a death until the control plane accepts it.
func (k Kept) SaveDied(r wire.DiedRequest) error { return writeJSON(k.path(diedFile), r) }

// Died returns the report that SaveDied saved, and whether a report is saved.
func (k Kept) Died() (wire.DiedRequest, bool) {
	var r wire.DiedRequest
	err := readJSON(k.path(diedFile), &r)
	return r, err == nil
}

// MarkOver records that the control plane has the attempt's end. After that, the agent must only remove
// the attempt's remaining files.
func (k Kept) MarkOver() error { return safefile.Replace(k.path(overFile), nil, 0o600) }

// Over reports whether MarkOver was called.
func (k Kept) Over() bool { return safefile.IsRegular(k.path(overFile)) }

// SaveWarm saves the ID of the warm step that runs the attempt.
func (k Kept) SaveWarm(id string) error { return safefile.Replace(k.path(warmFile), []byte(id), 0o600) }

// Warm returns the ID of the warm step that runs the attempt, or "" if the attempt has a step of its own.
func (k Kept) Warm() string {
	b, err := safefile.Read(k.path(warmFile), maxFile)
	if err != nil {
		return ""
	}
	return string(b)
}

// SaveConfiguration saves the configuration that the step is started with. The next agent needs it to
// find the step.
func (k Kept) SaveConfiguration(c *wire.AgentConfiguration) error {
	if err := writeJSON(k.path(configurationFile), c); err != nil {
		return fmt.Errorf("save the configuration of the step: %w", err)
	}
	return nil
}

// Configuration returns the configuration that SaveConfiguration saved, or fs.ErrNotExist if no
// configuration is saved.
func (k Kept) Configuration() (*wire.AgentConfiguration, error) {
	var c wire.AgentConfiguration
	if err := readJSON(k.path(configurationFile), &c); err != nil {
		return nil, fmt.Errorf("read the configuration of a step: %w", err)
	}
	return &c, nil
}

// Remove deletes the folder.
func (k Kept) Remove() error { return os.RemoveAll(string(k)) }

func readJSON(path string, v any) error {
	b, err := safefile.Read(path, maxFile)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return safefile.Replace(path, b, 0o600)
}

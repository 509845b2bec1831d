// Package attempt is the folder through which an agent and a step know of each
// other: what to do on the way in, what became of it on the way out. It holds
// no secret, and it is what lets a new agent find the steps of the one before.
//
// A job may do with the folder of its step what it likes: it is the same user,
// and a container sees it, too. So an agent opens nothing there but regular
// files, takes what they say for a job's word, and keeps what it has to believe
// itself in a folder of its own, Kept.
//
// Nothing in it is synced to disk: it matters only while the machine is up,
// because a step does not survive the machine. What outlives one is the lease
// at the control plane.
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
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/runner/internal/providers"
)

// TokenVariable is the environment variable with the launch token, the one
// secret that a step is given.
const TokenVariable = "FAIRLEAD_LAUNCH_TOKEN"

// MarkVariable is in the environment of a step that runs as a process and, by
// inheritance, of all that it starts: a process that has left the step's
// session is known by it. Whoever makes an environment for a tool passes it on.
const MarkVariable = "FAIRLEAD_STEP"

// Exit codes of a step. Whether the job went well is not among them: that is
// said in the finish report.
const (
	ExitFinished    = 0 // the control plane has the report
	ExitInternal    = 1 // a fault of ours; nothing was reported
	ExitUsage       = 2 // called with wrong arguments, or no step folder
	ExitStale       = 3 // the lease belongs to somebody else; the tool was killed and nothing more was written
	ExitNotStarted  = 4 // the launch token bought no job spec; no tool was run
	ExitUndelivered = 5 // the job is over, but the control plane did not take the report
	ExitDiskFull    = 6 // as ExitInternal or ExitUsage: the runner's disk has no space left
)

// Input is what an agent tells a step.
type Input struct {
	V           int                    `json:"v"` // 1
	URL         string                 `json:"url"`
	Registry    string                 `json:"registry"` // host[:port] of the control plane's registry
	Runner      fairlead.RunnerID      `json:"runner"`
	Keys        []wire.VerificationKey `json:"keys"` // pinned at enrolment
	Job         fairlead.JobID         `json:"job"`
	Epoch       int64                  `json:"epoch"`
	Operation   string                 `json:"operation"`
	Plugin      string                 `json:"plugin"`
	Install     string                 `json:"install,omitempty"`
	InstallID   string                 `json:"install_id,omitempty"`
	Component   string                 `json:"component,omitempty"`
	PlanJob     string                 `json:"plan_job,omitempty"` // of the saved plan that is carried out
	Grace       time.Duration          `json:"grace_ns"`
	StartBefore time.Time              `json:"start_before"`
	Data        string                 `json:"data"` // the runner's data folder
	Tofu        string                 `json:"tofu,omitempty"`
	PluginCache string                 `json:"plugin_cache,omitempty"`
	Providers   []providers.Package    `json:"providers,omitempty"` // in the plugin cache, each verified; none where the step does not see that
	CLIConfig   string                 `json:"cli_config,omitempty"`
	PassEnv     []string               `json:"pass_env,omitempty"`
	SecretEnv   []string               `json:"secret_env,omitempty"` // names of variables as PassEnv whose values no log shows
	Work        string                 `json:"work,omitempty"`       // the folder in whose folder work it works; "": Data
	Role        *Role                  `json:"role,omitempty"`       // nil: the tool gets none
	Confined    *Confined              `json:"confined,omitempty"`   // nil: the tool reaches what the step does
	CA          string                 `json:"ca,omitempty"`         // what the control plane's certificate is signed by, in PEM; "": what the machine trusts
	PlainHTTP   bool                   `json:"plain_http,omitempty"` // the control plane may be on another machine, without TLS
}

// Confined is what the tools of a step may reach of its machine's files, beside
// the job's own.
type Confined struct {
	Readable []string `json:"readable,omitempty"`
	Writable []string `json:"writable,omitempty"`
	Private  []string `json:"private"` // but nothing of these
}

// WorkIn returns the folder in whose folder work the step works.
func (in Input) WorkIn() string { return cmp.Or(in.Work, in.Data) }

// Role is the AWS role that the tool of a step works with.
type Role struct {
	ARN        string `json:"arn"`
	ExternalID string `json:"external_id,omitempty"` // no secret
	Region     string `json:"region,omitempty"`
	Install    string `json:"install,omitempty"` // identifier, a tag of the session
}

// ID names an attempt: of a job, at an epoch.
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

// CheckID refuses an identifier that could name anything but one folder. The
// control plane chooses it, and a runner trusts no path from there.
func CheckID(job string) error {
	if job == "" || len(job) > 100 || strings.Trim(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		return fmt.Errorf("%q is not a job identifier", job)
	}
	return nil
}

// The files of a step folder.
const (
	inputFile    = "step.json"
	stepIDFile   = "step-id"
	finishedFile = "finished"
	renewFile    = "renew"
	logEndFile   = "log-end.json"
	tallyFile    = "tally.json"
	// StdoutFile and StderrFile are what the step's process wrote.
	StdoutFile = "stdout"
	StderrFile = "stderr"
	// LogFile is the job's log, secrets masked, as far as it was written.
	LogFile = "log"
)

// maxFile bounds each of them in bytes, but what the step and its tool say.
const maxFile = 1 << 20

// Dir is one step's folder.
type Dir string

// Path returns the path of one of its files.
func (d Dir) Path(file string) string { return filepath.Join(string(d), file) }

// Create makes the folder, readable by its owner alone, and writes the input.
// A folder that is there already is refused: an attempt is launched once.
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

// Encode returns the input as it is told to a step that sees no folder of the
// agent's.
func Encode(in Input) ([]byte, error) {
	in.V = 1
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write the step's input: %w", err)
	}
	return b, nil
}

// Receive makes the folder of a step that runs elsewhere than its agent, from
// what Encode has made. One that is there already is refused: an attempt is
// run once.
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

// Input reads what the step is to do.
func (d Dir) Input() (Input, error) { return readInput(d.Path(inputFile)) }

func readInput(path string) (Input, error) {
	var in Input
	if err := readJSON(path, &in); err != nil {
		return Input{}, fmt.Errorf("read the step's input: %w", err)
	}
	if in.V != 1 {
		return Input{}, fmt.Errorf("the step's input is of version %d, this runner knows 1", in.V)
	}
	return in, nil
}

// StepID returns the identifier under which this step trades its launch token.
// The first call makes it with gen and keeps it before anything is sent: should
// an answer be lost, the same question gets the same answer.
func (d Dir) StepID(gen func() string) (string, error) {
	b, err := safefile.Read(d.Path(stepIDFile), maxFile)
	if err == nil && len(b) > 0 {
		return string(b), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read step id: %w", err)
	}
	id := gen()
	if err := safefile.Replace(d.Path(stepIDFile), []byte(id), 0o600); err != nil {
		return "", fmt.Errorf("keep step id: %w", err)
	}
	return id, nil
}

// MarkFinished says that the control plane has taken the step's report.
func (d Dir) MarkFinished() error { return safefile.Replace(d.Path(finishedFile), nil, 0o600) }

// Finished reports whether the control plane has taken the step's report.
func (d Dir) Finished() bool { return safefile.IsRegular(d.Path(finishedFile)) }

// SaveRenew keeps how often the step renews its lease: should it die, its agent
// knows how long the lease lasts without it.
func (d Dir) SaveRenew(every time.Duration) error {
	return safefile.Replace(d.Path(renewFile), []byte(every.String()), 0o600)
}

// Renew returns what SaveRenew has kept, or 0.
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

// LogEnd says that nothing follows in the log file. The step writes it when all
// that the tool said is in there.
type LogEnd struct {
	Size      int64 `json:"size"`      // of the file, in bytes
	Truncated bool  `json:"truncated"` // the log had reached its limit, or the disk was full
}

// SaveLogEnd keeps the end of the log.
func (d Dir) SaveLogEnd(e LogEnd) error { return writeJSON(d.Path(logEndFile), e) }

// LogEnd returns the end of the log. A step that died before it had a log has a
// whole one, of no bytes. It returns false if bytes may be missing: the step
// died while the tool was at work, or the log was truncated anyway.
func (d Dir) LogEnd() (LogEnd, bool) {
	var e LogEnd
	if err := readJSON(d.Path(logEndFile), &e); err == nil {
		return e, !e.Truncated
	}
	_, err := os.Lstat(d.Path(LogFile))
	return LogEnd{}, errors.Is(err, fs.ErrNotExist)
}

// Tally is what a step has counted, for the metrics of its agent.
type Tally struct {
	Outcome  string `json:"outcome"`   // of its report, that the control plane has taken
	LogBytes int64  `json:"log_bytes"` // that have arrived
	Renewals int64  `json:"renewals"`  // of the lease
	Late     int64  `json:"late"`      // of them, when two thirds of the lease were over
}

// SaveTally keeps what the step has counted.
func (d Dir) SaveTally(t Tally) error { return writeJSON(d.Path(tallyFile), t) }

// Tally returns what SaveTally has kept; the zero value if nothing.
func (d Dir) Tally() Tally {
	var t Tally
	if err := readJSON(d.Path(tallyFile), &t); err != nil {
		return Tally{} // counts are not worth an error
	}
	switch t.Outcome {
	case "succeeded", "failed", "canceled":
	default:
		return Tally{} // each other word of a job's would be a time series of its agent's
	}
	if t.LogBytes < 0 || t.Renewals < 0 || t.Late < 0 {
		return Tally{} // a counter does not go back
	}
	return t
}

// Tail returns up to limit bytes from the end of one of the folder's files; ""
// of one that cannot be read.
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

// The files of Kept, beside the step's input.
const (
	diedFile          = "died.json"
	configurationFile = "configuration.json"
	overFile          = "over"
)

// Kept is the folder of what an agent keeps of an attempt for itself and for the
// next agent. No step sees it.
type Kept string

// Keep makes the folder, readable by its owner alone, and keeps what the step is
// told. A folder that is there already is refused: an attempt is launched once.
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

// Input returns what the step was told.
func (k Kept) Input() (Input, error) { return readInput(k.path(inputFile)) }

// SaveDied keeps a report that is to be made until it was taken.
func (k Kept) SaveDied(r wire.DiedRequest) error { return writeJSON(k.path(diedFile), r) }

// Died returns the report that was kept, if one was.
func (k Kept) Died() (wire.DiedRequest, bool) {
	var r wire.DiedRequest
	err := readJSON(k.path(diedFile), &r)
	return r, err == nil
}

// MarkOver says that the control plane knows how the attempt has ended, and that
// there is nothing to be done but to remove what is left of it.
func (k Kept) MarkOver() error { return safefile.Replace(k.path(overFile), nil, 0o600) }

// Over reports whether MarkOver has said so.
func (k Kept) Over() bool { return safefile.IsRegular(k.path(overFile)) }

// SaveConfiguration keeps the configuration by which the step is started: the
// next agent looks for it where that says.
func (k Kept) SaveConfiguration(c *wire.AgentConfiguration) error {
	if err := writeJSON(k.path(configurationFile), c); err != nil {
		return fmt.Errorf("keep how the step is started: %w", err)
	}
	return nil
}

// Configuration returns what SaveConfiguration has kept; fs.ErrNotExist if
// nothing.
func (k Kept) Configuration() (*wire.AgentConfiguration, error) {
	var c wire.AgentConfiguration
	if err := readJSON(k.path(configurationFile), &c); err != nil {
		return nil, fmt.Errorf("read how a step was started: %w", err)
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

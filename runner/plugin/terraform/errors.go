package terraform

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/safefile"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/runner/workspace"
)

// result returns the parts of a failed run's result that follow from err.
func (j *job) result(err error) plugin.Result {
	if te, ok := errors.AsType[*toolError](err); ok {
		// The tool reports a full disk only with the system's own text.
		full := workspace.DiskFull(err) || strings.Contains(unwrapped(te.stderr), syscall.ENOSPC.Error())
		return plugin.Result{ExitCode: te.code, DiskFull: full}
	}
	return plugin.Result{}
}

// unwrapped returns the tool's output without line breaks: the tool wraps lines at any space.
func unwrapped(stderr string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(stderr, "│", " ")), " ")
}

// errorTitles classify errors of the tools by their titles. Both tools have the same titles since OpenTofu was forked from
// Terraform. If a title changes, only the reason becomes less exact.
var errorTitles = []struct {
	text   string
	reason fairlead.Reason
	next   string
}{
	{"Saved plan is stale", fairlead.ReasonPlanStale, "The state has changed since the plan was made: plan again."},
	{"Error acquiring the state lock", fairlead.ReasonStateLocked, "Wait until the holder releases the lock, then retry."},
	{"Error locking state", fairlead.ReasonStateLocked, "Wait until the holder releases the lock, then retry."},
	{"Error initializing", fairlead.ReasonInitFailed, ""},
}

// failed converts a failure of the tool to an error with a typed reason. The parameter fallback is the reason of an
// unclassified failure. Errors that are not failures of the tool are returned unchanged.
func (j *job) failed(err error, fallback fairlead.Reason) error {
	te, ok := errors.AsType[*toolError](err)
	if !ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &plugin.Error{Reason: fairlead.ReasonToolKilled, Err: err, Message: te.interrupted()}
	}
	if te.signal != "" {
		return &plugin.Error{Reason: fairlead.ReasonToolKilled, Err: err,
			Message: fmt.Sprintf("the tool was killed by a signal (%s) during %s; the machine may have run out of memory", te.signal, te.command)}
	}
	if len(j.vaults) > 0 && strings.Contains(unwrapped(te.stderr), fmt.Sprintf("format version %d", statefile.EncryptedVersion)) {
		return &plugin.Error{Reason: fairlead.ReasonInstallKeyMissing, Err: err, // the tool has no relay, because the runner has no key
			Message: "the stored state is encrypted for a key of the install, and this runner has no key. Give the runner the seed with which the state was encrypted"}
	}
	for _, v := range j.vaults {
		if e := v.refusal(); e != nil { // the tool shows only the status of the relay's answer
			return &plugin.Error{Reason: e.Reason, Err: errors.Join(err, e), Message: e.Message}
		}
	}
	if te.code == nil {
		if errors.Is(te.err, exec.ErrNotFound) || !te.started {
			return &plugin.Error{Reason: fairlead.ReasonToolMissing, Err: err,
				Message: fmt.Sprintf("%s could not be started on this runner: %v", j.tool.path, te.err)}
		}
		return &plugin.Error{Reason: fallback, Err: err, Message: j.env.Mask(fmt.Sprintf("%s: %v", te.command, te.err))}
	}
	text, title := diagnostic(te.stderr), firstTitle(te.stderr)
	if te.first != nil {
		text, title = te.first.String(), te.first.Summary
	}
	reason, next := fallback, ""
	for _, m := range errorTitles {
		if strings.Contains(title, m.text) {
			reason, next = m.reason, m.next
			if reason == fairlead.ReasonStateLocked {
				text, next = j.lockedBy(te.stderr), next+j.unlockHint()
			}
			break
		}
	}
	if text == "" {
		text = fmt.Sprintf("the tool exited with %d", *te.code)
	}
	message := fmt.Sprintf("%s failed: %s.", te.command, strings.TrimRight(text, "."))
	if next != "" {
		message += " " + next
	}
	return &plugin.Error{Reason: reason, Err: err, Message: j.env.Mask(message)}
}

// interrupted describes how the command ended after an interrupt, for a message.
func (e *toolError) interrupted() string {
	switch {
	case !e.started:
		return e.command + " had not started"
	case e.signal != "":
		return e.command + " did not stop in time and was killed"
	}
	return e.command + " was interrupted and stopped cleanly"
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// firstTitle returns the title of the tool's first error, or "". It ignores later titles. The first error may quote other
// errors, and the tool does not mark where its own text ends.
func firstTitle(stderr string) string {
	for line := range strings.Lines(stderr) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "│╷╵ "), "Error: "); ok {
			return strings.TrimSpace(title)
		}
	}
	return ""
}

// maxDiagnostic limits one diagnostic in a message, in bytes.
const maxDiagnostic = 600

// diagnosis is an error in the tool's JSON report.
type diagnosis struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"` // the title
	Detail   string `json:"detail"`  // the explanation, such as the error_message of a module's author
}

// String returns the error on one line.
func (d *diagnosis) String() string {
	text := d.Summary
	if d.Detail != "" {
		text += ": " + d.Detail
	}
	return fairlead.Clip(strings.Join(strings.Fields(text), " "), maxDiagnostic)
}

// maxReport limits one line of a report, in bytes.
const maxReport = 1 << 20

// firstError returns the first error in the tool's JSON report, or nil if there is no error or no report.
func firstError(path string) *diagnosis {
	f, err := safefile.Open(path) // a module's programs can replace the file with anything
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxReport)
	for lines.Scan() {
		var event struct {
			Type       string    `json:"type"`
			Diagnostic diagnosis `json:"diagnostic"`
		}
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Type == "diagnostic" && event.Diagnostic.Severity == "error" {
			return &event.Diagnostic
		}
	}
	return nil
}

// diagnostic returns the first error that the tool prints, on one line: its title and its explanation, such as the
// error_message of a module's author. The paragraph between the title and the explanation quotes the module and its values,
// so only the log has this paragraph. diagnostic is for tools without a JSON report. If the author's text has a line that
// looks like the start of another error, the returned text ends before this line.
func diagnostic(stderr string) string {
	_, rest, ok := strings.Cut(stderr, "Error: ")
	if !ok {
		return ""
	}
	title, rest, _ := strings.Cut(rest, "\n")
	var detail []string
	quoted, begun := false, false
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(strings.TrimPrefix(strings.TrimLeft(line, "│╷╵"), " "), " \r\n")
		text := strings.TrimSpace(line)
		if strings.HasPrefix(line, "Error: ") || strings.HasPrefix(line, "Warning: ") {
			break
		}
		switch {
		case text == "":
			quoted = false
		case !begun && location.MatchString(text): // the location and the rest of its paragraph
			quoted, begun = true, true
		case quoted:
		default:
			begun = true
			detail = append(detail, text)
		}
	}
	text := strings.TrimSpace(title)
	if len(detail) > 0 {
		text += ": " + strings.Join(detail, " ")
	}
	return fairlead.Clip(text, maxDiagnostic)
}

var (
	location = pattern.New(`^(on .+ line \d+|with .+[,:])`)
	colours  = pattern.New(`\x1b\[[0-9;]*m`) // some commands have no option to turn colours off
	info     = pattern.New(`(?m)^[\s│]*(ID|Who|Operation|Created):[ \t]+(\S.*?)\s*$`)
)

// lockedBy returns a text about the lock's holder, with the facts that the tool reports.
func (j *job) lockedBy(stderr string) string {
	lock := map[string]string{}
	for _, m := range info.FindAllStringSubmatch(stderr, -1) {
		if lock[m[1]] == "" { // only the first reported lock counts
			lock[m[1]] = m[2]
		}
	}
	text := "the state is locked"
	if lock["Who"] != "" {
		text += " by " + lock["Who"]
	}
	if j.lastBackend().unlock == "" {
		return text // the control plane reports more, or the holder is a process on this machine
	}
	at, _, _ := strings.Cut(lock["Created"], ".")
	for _, part := range []struct{ before, what string }{{" since ", at}, {" for ", strings.TrimPrefix(lock["Operation"], "OperationType")}, {", lock ", lock["ID"]}} {
		if part.what != "" {
			text += part.before + part.what
		}
	}
	return text
}

// unlockHint returns the hint for a lock that no process releases, or "" if the backend has no command to release a lock.
func (j *job) unlockHint() string {
	b := j.lastBackend()
	if b.unlock == "" {
		return ""
	}
	return fmt.Sprintf(" If no process uses %s any more, `%s` releases the lock.", b.where, b.unlock)
}

// lastBackend returns the backend that the tool used last.
func (j *job) lastBackend() backend {
	if j.otherPlace != nil {
		return j.otherPlace.backend()
	}
	return j.state.backend()
}

package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// LogMark stands in a job's log where a section of it begins or ends. The step
// writes it, and takes care that nothing that a job starts can; a reader shows the
// section, or what the mark says of it. In the log it is a control sequence, which
// terminals do not show: an APC string (ECMA-48, 8.3.2) that begins with FL and holds
// the mark's JSON in base64, in which no secret is found and masked by chance.
type LogMark struct {
	Section   string `json:"section"` // "init"
	End       bool   `json:"end,omitempty"`
	Failed    bool   `json:"failed,omitempty"`    // of an end: what the section was about did not succeed
	Providers int    `json:"providers,omitempty"` // of an end of init: that the module has
	Modules   int    `json:"modules,omitempty"`   // of an end of init: that the module calls, and those call
	Millis    int64  `json:"ms,omitempty"`        // of an end: how long it took, in milliseconds
}

// LogMarkOpens begins what a tool may not write into a log: an APC string.
const LogMarkOpens = "\x1b_"

const (
	logMarkBegin = LogMarkOpens + "FL"
	logMarkEnd   = "\x1b\\"
	maxLogMark   = 4 << 10 // bytes
)

// Encode returns the mark as it stands in a log.
func (m LogMark) Encode() []byte {
	text, err := json.Marshal(m)
	if err != nil {
		return nil // texts, numbers and truths always are JSON
	}
	return append(base64.RawURLEncoding.AppendEncode([]byte(logMarkBegin), text), logMarkEnd...)
}

// CutLogMark splits a log at its first mark: text goes before it and rest behind; a
// nil mark means that there is none in text. rest that may be the beginning of a mark
// is returned again, to be tried with what follows it; at the end of a log it is text.
func CutLogMark(log []byte) (text []byte, mark *LogMark, rest []byte) {
	for from := 0; ; {
		at := bytes.Index(log[from:], []byte(logMarkBegin))
		if at < 0 {
			break
		}
		at += from
		inside := log[at+len(logMarkBegin):]
		end := bytes.Index(inside[:min(len(inside), maxLogMark)], []byte(logMarkEnd))
		if end < 0 && len(inside) < maxLogMark {
			return log[:at], nil, log[at:]
		}
		if end >= 0 {
			var m LogMark
			raw, err := base64.RawURLEncoding.DecodeString(string(inside[:end]))
			if err == nil && json.Unmarshal(raw, &m) == nil {
				return log[:at], &m, inside[end+len(logMarkEnd):]
			}
		}
		from = at + len(logMarkBegin)
	}
	for n := min(len(log), len(logMarkBegin)-1); n > 0; n-- {
		if bytes.HasSuffix(log, []byte(logMarkBegin[:n])) {
			return log[:len(log)-n], nil, log[len(log)-n:]
		}
	}
	return log, nil, nil
}

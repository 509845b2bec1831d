package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// LogMark marks the begin or the end of a section in a job's log. Only the step
// writes marks. It removes all marks that a job's programs write. A reader shows the
// section, or a summary from the mark.
//
// In the log a mark is a control sequence that terminals do not show: an APC string
// (ECMA-48, 8.3.2) that begins with FL and holds the mark's JSON in base64. Because
// of base64, redaction cannot find a secret in it by chance and destroy it.
type LogMark struct {
	Section   string `json:"section"` // "init"
	End       bool   `json:"end,omitempty"`
	Failed    bool   `json:"failed,omitempty"`    // for an end: the section failed
	Providers int    `json:"providers,omitempty"` // for an end of init: number of the module's providers
	Modules   int    `json:"modules,omitempty"`   // for an end of init: number of called modules, at every depth
	Millis    int64  `json:"ms,omitempty"`        // for an end: duration of the section in milliseconds
}

// LogMarkOpens is the begin of an APC string. A tool must not write it into a log.
const LogMarkOpens = "\x1b_"

const (
	logMarkBegin = LogMarkOpens + "FL"
	logMarkEnd   = "\x1b\\"
	maxLogMark   = 4 << 10 // bytes
)

// Encode returns the bytes of the mark in a log.
func (m LogMark) Encode() []byte {
	text, err := json.Marshal(m)
	if err != nil {
		return nil // cannot happen: strings, numbers and booleans always encode
	}
	return append(base64.RawURLEncoding.AppendEncode([]byte(logMarkBegin), text), logMarkEnd...)
}

// CutLogMark splits a log at its first mark: text is before the mark, rest is after
// it. A nil mark means that the log has no complete mark. In this case rest holds the
// bytes at the end that may begin a mark: call CutLogMark again with rest and the
// bytes that follow. At the end of a log, rest is text.
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

// Package cloudwatch brings job logs through CloudWatch Logs, which is their
// record on AWS, into the log that readers use (package dynamo).
//
// Transport puts what a tool wrote into a log group, within the service's
// limits, and Ingest takes what a subscription brings of it into the log. An
// event says at which byte it begins, so it may come twice, late or in any
// order: the log takes it or asks for what is missing, which Transport.Repair
// fetches.
package cloudwatch

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/joblog"
)

// Event is a piece of a stream as one event of CloudWatch Logs carries it, or,
// with End, what its writer says at its end; Offset is its size then.
type Event struct {
	Offset int64
	Data   []byte
	End    *End
}

// End is the writer's word on a stream that has ended. It shows whether what
// there is of the stream is all of it.
type End struct {
	CRC32     uint32 // IEEE, of all bytes
	Truncated bool   // the writer had more to say than a stream takes
}

// StreamName returns what the stream is called in its log group.
func StreamName(s joblog.Stream) string { return fmt.Sprintf("%s/%d", s.Job, s.Epoch) }

// ParseStreamName returns the stream behind a name, or an error of KindInvalid.
func ParseStreamName(name string) (joblog.Stream, error) {
	job, digits, _ := strings.Cut(name, "/")
	epoch, err := strconv.ParseInt(digits, 10, 64)
	s := joblog.Stream{Job: job, Epoch: epoch}
	if err != nil || joblog.CheckStream(s) != nil || StreamName(s) != name {
		return joblog.Stream{}, fairlead.Invalid(fairlead.CodeInvalidLogStream, "%.200q is no stream of a job", name)
	}
	return s, nil
}

// An event's message is the offset, a letter and the bytes: as they are after
// "t", which a person can read in the console, or in base64 after "b". With
// the offset before them no message is empty and no byte is trimmed.
const (
	asText   = "t"
	asBase64 = "b"
	asEnd    = "e" // the checksum follows, and one of the words below
)

const (
	endWhole     = "whole"
	endTruncated = "truncated"
)

// encodeEnd returns the message at the end of a stream of that size.
func encodeEnd(size int64, e End) string {
	how := endWhole
	if e.Truncated {
		how = endTruncated
	}
	return fmt.Sprintf("%d %s %08x %s", size, asEnd, e.CRC32, how)
}

func decodeEnd(text string) (*End, bool) {
	sum, how, _ := strings.Cut(text, " ")
	crc, err := strconv.ParseUint(sum, 16, 32)
	if err != nil || len(sum) != 8 || how != endWhole && how != endTruncated {
		return nil, false
	}
	return &End{CRC32: uint32(crc), Truncated: how == endTruncated}, true
}

// maxPiece is the most bytes of a log in one event. In base64 and with its
// offset it is 175 KB, below the 256 KiB that the service has always taken.
const maxPiece = 128 << 10

// Encode returns the messages that carry data, which begins at offset.
func Encode(offset int64, data []byte) (messages []string) {
	for len(data) > 0 {
		n := min(len(data), maxPiece)
		// A character that is cut in two would make both pieces base64.
		for cut := n; n < len(data) && cut > n-utf8.UTFMax; cut-- {
			if utf8.RuneStart(data[cut]) {
				n = cut
				break
			}
		}
		messages = append(messages, encode(offset, data[:n]))
		offset, data = offset+int64(n), data[n:]
	}
	return messages
}

func encode(offset int64, piece []byte) string {
	if isText(piece) {
		return fmt.Sprintf("%d %s %s", offset, asText, piece)
	}
	return fmt.Sprintf("%d %s %s", offset, asBase64, base64.StdEncoding.EncodeToString(piece))
}

// isText reports whether a message brings the bytes back unchanged. Colours,
// which begin with an escape, are text.
func isText(piece []byte) bool {
	if !utf8.Valid(piece) {
		return false
	}
	for _, r := range string(piece) {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != 0x1b || r == 0x7f || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

// Decode returns the event behind a message. One that is not of Encode's form,
// as a stranger with access to the group may write it, is of KindInvalid.
func Decode(message string) (Event, error) {
	refused := fairlead.Invalid(fairlead.CodeInvalidLogEvent, "%.80q is no piece of a log", message)
	digits, rest, _ := strings.Cut(message, " ")
	how, data, ok := strings.Cut(rest, " ")
	offset, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || offset < 0 || offset > joblog.MaxStream || data == "" {
		return Event{}, refused
	}
	e := Event{Offset: offset}
	switch how {
	case asText:
		e.Data = []byte(data)
	case asBase64:
		if e.Data, err = base64.StdEncoding.DecodeString(data); err != nil {
			return Event{}, refused
		}
	case asEnd:
		if e.End, ok = decodeEnd(data); !ok {
			return Event{}, refused
		}
	default:
		return Event{}, refused
	}
	if len(e.Data) > joblog.MaxAppend {
		return Event{}, refused
	}
	return e, nil
}

// Package cloudwatch transports job logs through CloudWatch Logs to the log that readers use
// (package dynamo). On AWS, CloudWatch Logs has the record of a log: the copy that the step
// writes to.
//
// Transport puts the output of a tool into a log group, within the limits of the service.
// Ingest appends the events of a subscription to the log. Each event contains the offset of
// its first byte, so events may repeat, come late and come in any order. If bytes before an
// event are missing, the log refuses the event and reports the offset of the first missing
// byte. Transport.Repair then fetches the missing bytes.
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

// Event is a piece of a stream in one event of CloudWatch Logs. If End is not nil, the event
// is the writer's report at the end of the stream. Its Offset is the size of the stream.
type Event struct {
	Offset int64
	Data   []byte
	End    *End
}

// End is the writer's report at the end of a stream. It shows whether the stored bytes are
// complete.
type End struct {
	CRC32     uint32 // IEEE checksum of all bytes of the stream
	Truncated bool   // the output exceeded the limit of a stream
}

// StreamName returns the name of the stream in its log group.
func StreamName(s joblog.Stream) string { return fmt.Sprintf("%s/%d", s.Job, s.Epoch) }

// ParseStreamName returns the stream of a name. If StreamName cannot return the name, the
// error is of KindInvalid.
func ParseStreamName(name string) (joblog.Stream, error) {
	job, digits, _ := strings.Cut(name, "/")
	epoch, err := strconv.ParseInt(digits, 10, 64)
	s := joblog.Stream{Job: job, Epoch: epoch}
	if err != nil || joblog.CheckStream(s) != nil || StreamName(s) != name {
		return joblog.Stream{}, fairlead.Invalid(fairlead.CodeInvalidLogStream, "%.200q is not the name of a job's log stream", name)
	}
	return s, nil
}

// An event's message is the offset, a letter and the bytes. After the letter "t", the bytes
// are unchanged, so that a person can read them in the console. After the letter "b", the
// bytes are in base64. Each message begins with the offset, so that no message is empty and
// the service trims no byte.
const (
	asText   = "t"
	asBase64 = "b"
	asEnd    = "e" // the end of the stream; the checksum and endWhole or endTruncated follow
)

const (
	endWhole     = "whole"
	endTruncated = "truncated"
)

// encodeEnd returns the message for the end of a stream of size bytes.
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

// maxPiece is the maximum number of a log's bytes in one event. In base64 and with its
// offset, a piece of maxPiece bytes has 175 KB. The service has always accepted events of up
// to 256 KiB.
const maxPiece = 128 << 10

// Encode returns the messages that contain data, which begins at offset.
func Encode(offset int64, data []byte) (messages []string) {
	for len(data) > 0 {
		n := min(len(data), maxPiece)
		// Do not split a character: otherwise both pieces would be in base64.
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

// isText reports whether the piece can be in a message unchanged. Colour codes, which begin
// with an escape character, count as text.
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

// Decode returns the event of a message, or an error of KindInvalid if the message is not in
// the format of this package. Any other writer with access to the log group can write such a
// message.
func Decode(message string) (Event, error) {
	refused := fairlead.Invalid(fairlead.CodeInvalidLogEvent, "%.80q is not a piece of a log", message)
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

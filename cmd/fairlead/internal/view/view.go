// Package view renders the CLI's results and failures, for people or as JSON. A failure
// includes the next step. The package cleans all text that comes from servers and jobs,
// so that this text cannot control the terminal.
package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
)

// Document is a result. Human writes it for people; JSON returns the value to
// encode for programs.
type Document interface {
	Human(*Page)
	JSON() any
}

// Done returns a Document that reports a completed change in one line. The parameter
// value is the JSON form of the Document. Done cleans the arguments, but not the format,
// so the format must be a constant.
func Done(value any, format string, args ...any) Document { return done{value, format, args} }

type done struct {
	value  any
	format string
	args   []any
}

func (d done) JSON() any { return d.value }

func (d done) Human(p *Page) {
	p.Line("%s "+d.format, append([]any{Styled(p.Style.Good("✓"))}, d.args...)...)
}

// Deleted returns a Document that reports a deleted record.
func Deleted(noun, name string) Document {
	return Done(map[string]string{"deleted": name}, "Deleted %s %s", noun, name)
}

// Printer prints the result or the failure of a command.
type Printer interface {
	// Print writes the document to the standard output.
	Print(Document) error
	// Fail writes the failure to the standard error.
	Fail(Failure)
}

// Screen describes the output for people.
type Screen struct {
	Terminal bool // the output is a terminal, so tables show times relative to now
	Width    int  // maximum width of a table, in characters; 0: no limit
}

// NewHuman returns the Printer for people.
func NewHuman(out, errOut io.Writer, outStyle, errStyle Style, screen Screen, now func() time.Time) Printer {
	return human{out: out, err: errOut, outStyle: outStyle, errStyle: errStyle, screen: screen, now: now}
}

type human struct {
	out, err           io.Writer
	outStyle, errStyle Style
	screen             Screen
	now                func() time.Time
}

func (h human) Print(d Document) error {
	page := &Page{Style: h.outStyle, screen: h.screen, now: h.now()}
	d.Human(page)
	if _, err := h.out.Write(page.buf.Bytes()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// NewJSON returns the Printer for programs. The Printer prints one document to the
// standard output, or a failure as one line to the standard error. This line is always
// the last line of the standard error.
func NewJSON(out, errOut io.Writer) Printer { return jsonPrinter{out: out, err: errOut} }

type jsonPrinter struct{ out, err io.Writer }

func (j jsonPrinter) Print(d Document) error {
	data, err := encode(d.JSON(), "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if _, err := j.out.Write(data); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

func encode(v any, indent string) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return buf.Bytes(), err
}

// Page collects the text that a Document writes for people. It cleans all text, except
// the escape sequences of its own Style.
type Page struct {
	Style  Style
	screen Screen
	buf    bytes.Buffer
	now    time.Time
}

// Line writes one line of text. It cleans the arguments, but not the format, so the
// format must be a constant.
func (p *Page) Line(format string, args ...any) {
	fmt.Fprintf(&p.buf, format+"\n", cleanAll(args)...)
}

// Styled is text that is already cleaned and may have colours.
type Styled string

func cleanAll(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case Styled:
			out[i] = string(a)
		case int, int64, bool:
			out[i] = a
		default:
			out[i] = Clean(fmt.Sprint(a))
		}
	}
	return out
}

// Fields writes names and values, aligned. It omits pairs with an empty value.
func (p *Page) Fields(pairs ...[2]string) {
	width := 0
	for _, kv := range pairs {
		if kv[1] != "" {
			width = max(width, len(kv[0]))
		}
	}
	for _, kv := range pairs {
		if kv[1] != "" {
			p.Line("%s  %s", Styled(p.Style.Dim(fmt.Sprintf("%-*s", width, kv[0]))), Cell(kv[1]))
		}
	}
}

// Gap writes an empty line.
func (p *Page) Gap() { p.buf.WriteByte('\n') }

// Time renders t as RFC 3339 in UTC with whole seconds. The zero time is "never".
func Time(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

// Ago returns the time t as a cell of a table. On a terminal, the time is relative to now.
// Otherwise, Ago returns the same text as Time. Tables of history, such as deployments and
// jobs, use Time, because a person compares these times with times in other logs.
func (p *Page) Ago(t time.Time) string {
	if t.IsZero() || !p.screen.Terminal {
		return Time(t)
	}
	if d := p.now.Sub(t); d < time.Second && d > -time.Minute { // t can be in the future, because the clocks differ a little
		return "now"
	}
	return humanize.RelTime(t, p.now, "ago", "from now")
}

// Seconds renders a duration as "1.5 s" or "2 min 03 s". A negative duration is
// "0.0 s".
func Seconds(d time.Duration) string {
	switch {
	case d < 0:
		return "0.0 s"
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	}
}

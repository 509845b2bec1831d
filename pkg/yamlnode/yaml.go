package yamlnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Place is a line and a column, both from 1, the column in characters.
type Place struct{ Line, Column int }

// Node is one value of a document, with its place. Value is nil, bool,
// json.Number (see CanonicalNumber) or string for a scalar; lists have Items,
// maps have Fields.
type Node struct {
	Place
	Shape   Shape
	Value   any
	Items   []Node
	Fields  []Field
	Dollars []Place // where each "${" of a string stands; there may be fewer than in the string
}

// Shape is what a node is.
type Shape int

// The shapes.
const (
	Scalar Shape = iota
	List
	Map
)

// Field is one entry of a map. A map holds them as they are written, so that
// whoever reads it can report keys that are repeated.
type Field struct {
	Place
	Key   string
	Value Node
}

// Unique returns the fields of a map, and a problem for each whose key stood
// before: the first of them counts. The problems name no file yet.
func (n Node) Unique() (fields []Field, problems []Problem) {
	first := map[string]int{}
	fields = make([]Field, 0, len(n.Fields))
	for _, f := range n.Fields {
		if line, twice := first[f.Key]; twice {
			problems = append(problems, Problem{Line: f.Line, Column: f.Column, Code: "duplicate-key",
				Message: fmt.Sprintf("the key %s is repeated; it stands in line %d already", Quote(f.Key), line), Hint: "Remove one of the two."})
			continue
		}
		first[f.Key] = f.Line
		fields = append(fields, f)
	}
	return fields, problems
}

// Child returns the value of the first field with that key.
func (n Node) Child(key string) (Node, bool) {
	for _, f := range n.Fields {
		if f.Key == key {
			return f.Value, true
		}
	}
	return Node{}, false
}

// Moved returns a copy of n that stands at one place.
func (n Node) Moved(to Place) Node {
	out := n
	out.Place, out.Items, out.Fields = to, nil, nil
	for _, item := range n.Items {
		out.Items = append(out.Items, item.Moved(to))
	}
	for _, f := range n.Fields {
		out.Fields = append(out.Fields, Field{Place: to, Key: f.Key, Value: f.Value.Moved(to)})
	}
	return out
}

// IsNull reports whether n is nothing: a null, or a value that is not there.
func (n Node) IsNull() bool { return n.Shape == Scalar && n.Value == nil }

// Describe says what the node is, never what is in it.
func (n Node) Describe() string {
	switch n.Shape {
	case List:
		return "a list"
	case Map:
		return "a map"
	}
	return Describe(n.Value)
}

// Describe names the type of a JSON value with its article.
func Describe(value any) string {
	switch value.(type) {
	case nil:
		return "nothing (null)"
	case string:
		return "a string"
	case bool:
		return "a bool"
	case json.Number, float64, int, int64, uint64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	default:
		return fmt.Sprintf("a %T", value)
	}
}

// source is the text of the file and where its lines begin.
type source struct {
	text  string
	lines []int // byte offset of each line
}

// Read reads YAML into nodes. It takes the part of YAML 1.2 that JSON could
// say, with YAML's own quoting, block texts and comments: anchors, aliases,
// tags, merge keys and complex keys are refused, as a configuration needs none
// of them and each is a way to make a small file expand. A document without
// content is a null. It never panics. Problems have no File; where there are
// some, the node is what could be read all the same.
//
// Its time is in proportion to len(src), which the caller bounds, but for one
// step, which maxTokens bounds.
func Read(src []byte) (Node, []Problem) {
	text, problem := cleanText(src)
	if problem != nil {
		return Node{}, []Problem{*problem}
	}
	s := &source{text: text, lines: []int{0}}
	for i := range text {
		if text[i] == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	tokens := lexer.Tokenize(text)
	if problems := checkTokens(tokens); len(problems) > 0 {
		return Node{}, problems
	}
	file, err := parse(tokens)
	if err != nil {
		return Node{}, []Problem{s.syntaxProblem(err)}
	}
	var root Node
	root.Place = Place{1, 1}
	var problems []Problem
	seen := 0
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		n := s.node(doc.Body, 0, &problems)
		if seen++; seen == 2 {
			problems = append(problems, Problem{
				Line: n.Line, Column: n.Column, Code: "malformed-yaml",
				Message: "the file holds more than one document", Hint: "Remove the line ---.",
			})
		}
		if seen == 1 {
			root = n
		}
	}
	return root, problems
}

// parse guards against panics of the parser: the text comes from anybody, and
// the parser is not ours.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the file cannot be read as YAML")
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// cleanText returns the text without byte order mark and carriage returns,
// or what is wrong with its bytes.
func cleanText(src []byte) (string, *Problem) {
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	text := strings.ReplaceAll(string(src), "\r\n", "\n")
	line, column := 1, 0
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		column++
		switch {
		case r == '\n':
			line, column = line+1, 0
		case r == utf8.RuneError && size == 1:
			return "", &Problem{
				Line: line, Column: column, Code: "malformed-yaml", Message: "the file is not UTF-8 text here",
				Hint: "Save it as UTF-8.",
			}
		case (r < ' ' && r != '\t') || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\ufeff' || r == '\u2028' || r == '\u2029':
			hint := "Remove it."
			if !IsControl(r) {
				hint = "Remove it, or write it as an escape inside double quotes."
			}
			return "", &Problem{
				Line: line, Column: column, Code: "malformed-yaml",
				Message: fmt.Sprintf("the file holds the control character U+%04X", r), Hint: hint,
			}
		}
		rest = rest[size:]
	}
	return text, nil
}

// maxTokens bounds the file once more, because the parser needs time in
// proportion to the square of the keys of one map: half a second for this many.
const maxTokens = 20000

// checkTokens reports what is refused before a tree is built of it.
func checkTokens(tokens token.Tokens) []Problem {
	var problems []Problem
	refuse := func(tk *token.Token, message, hint string) {
		p := placeOf(tk)
		problems = append(problems, Problem{Line: p.Line, Column: p.Column, Code: "unsupported-yaml", Message: message, Hint: hint})
	}
	depth := depthMeter{}
	count := 0
	for _, tk := range tokens {
		if tk.Type != token.CommentType {
			count++
		}
		if count > maxTokens {
			p := placeOf(tk)
			return []Problem{{
				Line: p.Line, Column: p.Column, Code: "file-too-large",
				Message: fmt.Sprintf("the file has more than %d keys, values and marks", maxTokens), Hint: "Keep data elsewhere.",
			}}
		}
		switch tk.Type {
		case token.AnchorType:
			refuse(tk, "anchors are not supported", "Write the value out, or put quotes around a text that begins with &.")
		case token.AliasType:
			refuse(tk, "aliases are not supported", "Write the value out, or put quotes around a text that begins with *.")
		case token.MergeKeyType:
			refuse(tk, "merge keys are not supported", "Write the fields out.")
		case token.TagType:
			refuse(tk, "tags are not supported", "Put quotes around a text that looks like another type, or begins with an exclamation mark.")
		case token.DirectiveType:
			refuse(tk, "directives are not supported", "Remove the line.")
		case token.MappingKeyType:
			refuse(tk, "keys must be plain names", "Put quotes around a text that begins with a question mark.")
		}
		if depth.add(tk) > MaxDepth+4 { // the file itself, three levels of its own, and then MaxDepth
			refuse(tk, fmt.Sprintf("lists and maps are nested deeper than %d", MaxDepth), "")
			return problems
		}
		if len(problems) >= MaxProblems {
			return problems
		}
	}
	return problems
}

// depthMeter follows the nesting of collections through the tokens, so that no
// tree is built, by recursion, of a million brackets.
type depthMeter struct {
	flow   int
	blocks []block
}

type block struct {
	column   int
	sequence bool
}

// add returns the depth after tk.
func (m *depthMeter) add(tk *token.Token) int {
	switch tk.Type {
	case token.SequenceStartType, token.MappingStartType:
		m.flow++
	case token.SequenceEndType, token.MappingEndType:
		m.flow = max(0, m.flow-1)
	case token.SequenceEntryType, token.MappingValueType:
		if m.flow > 0 {
			break
		}
		b := block{column: tk.Position.Column, sequence: tk.Type == token.SequenceEntryType}
		if prev := tk.Prev; !b.sequence && prev != nil && prev.Position.Line == tk.Position.Line && prev.Position.Column > 0 {
			b.column = prev.Position.Column // that of the key
		}
		for len(m.blocks) > 0 {
			top := m.blocks[len(m.blocks)-1]
			if top.column < b.column || (top.column == b.column && (!top.sequence || b.sequence)) {
				break
			}
			m.blocks = m.blocks[:len(m.blocks)-1]
		}
		if len(m.blocks) == 0 || m.blocks[len(m.blocks)-1] != b {
			m.blocks = append(m.blocks, b)
		}
	}
	return m.flow + len(m.blocks)
}

// syntaxProblem turns an error of the parser into a problem.
func (s *source) syntaxProblem(err error) Problem {
	p := Problem{Line: 1, Column: 1, Code: "malformed-yaml"}
	var syntax yaml.Error
	if !errors.As(err, &syntax) {
		p.Message = Printable(err.Error())
	} else {
		// Error would add an excerpt of the file, which takes minutes for a
		// hostile one.
		p.Message = Printable(syntax.GetMessage())
		if tk := syntax.GetToken(); tk != nil {
			at := placeOf(tk)
			p.Line, p.Column = at.Line, at.Column
		}
	}
	if p.Line > len(s.lines) {
		p.Line = len(s.lines)
	}
	switch line := s.line(p.Line); {
	case strings.Contains(line, "${") && strings.ContainsAny(line, "[{,"):
		p.Hint = `Inside [ ] and { } a reference needs quotes: "${inputs.name}".`
	case strings.HasPrefix(strings.TrimLeft(line, " "), "\t"):
		p.Hint = "Indent with spaces, not with tabs."
	default:
		p.Hint = s.indentHint(p.Line)
	}
	return p
}

// indentHint asks whether the line n, or the one below it, is indented by
// mistake. It returns "" where the indentation explains nothing.
func (s *source) indentHint(n int) string {
	own, ok := s.indent(n)
	if !ok {
		return ""
	}
	open := -1 // the smallest indent so far on the way up: what is deeper is closed
	for above := n - 1; above > 0; above-- {
		in, ok := s.indent(above)
		if !ok || (open >= 0 && in >= open) {
			continue
		}
		if in == own {
			break
		}
		if in < own {
			if open < 0 {
				break // it begins a level of its own
			}
			return fmt.Sprintf("Line %d begins with %s, which is the indentation of no line that it could belong to. Is it indented too little?", n, spaces(own))
		}
		open = in
	}
	for below := n + 1; below <= len(s.lines); below++ {
		if in, ok := s.indent(below); ok {
			if in > own && strings.Contains(s.line(below), ":") {
				return fmt.Sprintf("Line %d begins with %s, line %d with %d, and has its value already. Is line %d indented too much?", below, spaces(in), n, own, below)
			}
			break
		}
	}
	return ""
}

// indent returns how many spaces the line n begins with; ok is false for a
// line without content.
func (s *source) indent(n int) (count int, ok bool) {
	line := s.line(n)
	text := strings.TrimLeft(line, " ")
	return len(line) - len(text), text != "" && text[0] != '#'
}

func spaces(n int) string {
	if n == 1 {
		return "1 space"
	}
	return fmt.Sprintf("%d spaces", n)
}

// line returns the text of a line, counted from 1.
func (s *source) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	text, _, _ := strings.Cut(s.text[s.lines[n-1]:], "\n")
	return text
}

// placeOf returns where a token begins. Some tokens of block texts have no
// column.
func placeOf(tk *token.Token) Place {
	if tk == nil || tk.Position == nil {
		return Place{1, 1}
	}
	return Place{max(1, tk.Position.Line), max(1, tk.Position.Column)}
}

// node converts a parsed node and reports what JSON has no word for.
func (s *source) node(n ast.Node, depth int, problems *[]Problem) Node {
	out := Node{Place: placeOf(n.GetToken())}
	report := func(message, hint string) {
		*problems = append(*problems, Problem{Line: out.Line, Column: out.Column, Code: "unsupported-yaml", Message: message, Hint: hint})
	}
	if depth > MaxDepth+4 {
		report(fmt.Sprintf("lists and maps are nested deeper than %d", MaxDepth), "")
		return out
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.Shape = Map
		for i, value := range n.Values {
			f := s.field(value, depth, problems)
			if i == 0 && !n.IsFlowStyle {
				out.Place = f.Place // the parser gives that of the colon
			}
			out.Fields = append(out.Fields, f)
		}
	case *ast.MappingValueNode:
		out.Shape = Map
		f := s.field(n, depth, problems)
		out.Place = f.Place
		out.Fields = []Field{f}
	case *ast.SequenceNode:
		out.Shape = List
		for _, value := range n.Values {
			if value == nil {
				out.Items = append(out.Items, Node{Place: out.Place})
				continue
			}
			out.Items = append(out.Items, s.node(value, depth+1, problems))
		}
	case *ast.LiteralNode:
		text := ""
		if n.Value != nil {
			text = n.Value.Value
			out.Dollars = s.dollars(out.Place, text, len(n.Value.GetToken().Origin))
		}
		out.Value = text
	case *ast.StringNode:
		tk := n.GetToken()
		if tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType {
			out.Value = n.Value
			out.Dollars = s.dollars(out.Place, n.Value, len(tk.Origin))
			break
		}
		s.plain(&out, n.Value, tk, report)
	case *ast.NullNode:
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		tk := n.GetToken()
		s.plain(&out, tk.Value, tk, report)
	default:
		report("this part of YAML is not supported", "Use maps, lists and scalars only.")
	}
	return out
}

// field converts one entry of a map.
func (s *source) field(n *ast.MappingValueNode, depth int, problems *[]Problem) Field {
	f := Field{Place: placeOf(n.Key.GetToken())}
	switch key := n.Key.(type) {
	case *ast.StringNode:
		f.Key = key.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		f.Key = key.GetToken().Value
	default:
		*problems = append(*problems, Problem{
			Line: f.Line, Column: f.Column, Code: "unsupported-yaml",
			Message: "keys must be plain names", Hint: "Put quotes around the key.",
		})
	}
	if n.Value == nil {
		f.Value = Node{Place: f.Place}
		return f
	}
	f.Value = s.node(n.Value, depth+1, problems)
	if f.Value.Shape == Scalar && f.Value.Value == nil {
		f.Value.Place = f.Place // a value that is not there has no place of its own
	}
	return f
}

// plain gives a scalar without quotes its type, by the core schema of YAML
// 1.2, which is JSON's but for octal and hexadecimal integers. The parser's own
// reading is not used, because it knows no "1e3" and takes "1_000" for a number.
func (s *source) plain(out *Node, text string, tk *token.Token, report func(message, hint string)) {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return
	case "true", "True", "TRUE":
		out.Value = true
		return
	case "false", "False", "FALSE":
		out.Value = false
		return
	}
	digits := strings.TrimLeft(text, "+-")
	switch strings.ToLower(digits) {
	case ".inf", ".nan":
		report(fmt.Sprintf("%s is not a number that can be given to anything", Quote(text)), "")
		return
	}
	if n, ok := radixInteger(text); ok {
		out.Value = n
		return
	}
	if numberPattern.MatchString(text) && strings.ContainsAny(text, "0123456789") {
		if len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0123456789") == "" {
			// An account number, most likely: read as a number it would lose its zeros.
			report(fmt.Sprintf("the number %s begins with a zero", Quote(text)),
				fmt.Sprintf("Put quotes around it if it is a text: %s. An octal number is written 0o17.", strconv.Quote(text)))
			return
		}
		n, err := CanonicalNumber(text)
		if err != nil {
			report(Printable(err.Error()), "Put quotes around it if it is a text.")
			return
		}
		out.Value = n
		return
	}
	out.Value = text
	out.Dollars = s.dollars(out.Place, text, len(tk.Origin))
}

// dollars returns the places of the "${" of a string that begins at p and
// takes about length bytes of the file. A "${" that is written as an escape
// stands nowhere in the file, so there may be fewer than in the string.
func (s *source) dollars(p Place, text string, length int) []Place {
	count := strings.Count(text, "${")
	if count == 0 || p.Line > len(s.lines) {
		return nil
	}
	line, column := p.Line, p.Column
	// To the byte at which the string begins.
	offset := s.lines[line-1]
	for i := 1; i < column && offset < len(s.text); i++ {
		_, size := utf8.DecodeRuneInString(s.text[offset:])
		offset += size
	}
	const header = 200 // what may follow the | of a block text
	end := min(len(s.text), offset+length+header)
	var places []Place
	for offset < end && len(places) < count {
		if strings.HasPrefix(s.text[offset:], "${") {
			places = append(places, Place{line, column})
		}
		r, size := utf8.DecodeRuneInString(s.text[offset:])
		offset += size
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return places
}

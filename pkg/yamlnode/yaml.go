package yamlnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Place is a line and a column, both counted from 1. Columns count characters. File is set only in nodes of another file than
// the reader's, see Node.In.
type Place struct {
	Line, Column int
	File         string
}

// Node is one value of a document, with its place. Value is nil, bool,
// json.Number (see CanonicalNumber) or string for a scalar; lists have Items,
// maps have Fields.
type Node struct {
	Place
	Shape   Shape
	Value   any
	Items   []Node
	Fields  []Field
	Dollars []Place // the places of "${" in a string; the place of a "${" that is written as an escape is missing
}

// In returns a copy of the node with all its places in the file. A reader of another file reports problems of the node with
// this file.
func (n Node) In(file string) Node {
	n.Place.File = file
	n.Items, n.Fields, n.Dollars = slices.Clone(n.Items), slices.Clone(n.Fields), slices.Clone(n.Dollars)
	for i := range n.Items {
		n.Items[i] = n.Items[i].In(file)
	}
	for i := range n.Fields {
		n.Fields[i].Place.File, n.Fields[i].Value = file, n.Fields[i].Value.In(file)
	}
	for i := range n.Dollars {
		n.Dollars[i].File = file
	}
	return n
}

// Shape is the kind of a node.
type Shape int

// The shapes.
const (
	Scalar Shape = iota
	List
	Map
)

// Field is one entry of a map. If a key is repeated, the map keeps all entries in the
// order of the file, so that the reader can report them.
type Field struct {
	Place
	Key   string
	Value Node
}

// Unique returns the first field of each key of a map, and a problem for each
// repetition of a key. The File of the problems is that of the fields.
func (n Node) Unique() (fields []Field, problems []Problem) {
	first := map[string]int{}
	fields = make([]Field, 0, len(n.Fields))
	for _, f := range n.Fields {
		if line, twice := first[f.Key]; twice {
			problems = append(problems, Problem{File: f.File, Line: f.Line, Column: f.Column, Code: "duplicate-key",
				Message: fmt.Sprintf("the key %s is repeated; it is already in line %d", Quote(f.Key), line), Hint: "Remove one of the two."})
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

// Moved returns a copy of n in which all nodes have the same place.
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

// IsNull reports whether n is a null or a missing value.
func (n Node) IsNull() bool { return n.Shape == Scalar && n.Value == nil }

// Describe names the type of the node with its article. It never shows the content.
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

// source is the text of the file and the begin of each line.
type source struct {
	text  string
	lines []int // byte offset of each line
}

// Read reads YAML into nodes. It accepts the part of YAML 1.2 that has an equivalent
// in JSON, with YAML's quoting, block texts and comments. It refuses anchors, aliases,
// tags, merge keys and complex keys. No configuration needs them, and with them a small
// file could expand to a very large one. A document without content is a null.
//
// Read never panics. The File of the problems is that of the fields. If there are problems, the
// node holds the part that could be read.
//
// The caller limits len(src). The time is proportional to len(src), except for one
// step of the parser; maxTokens limits the time of that step.
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
	root.Place = Place{Line: 1, Column: 1}
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

// parse calls the parser and turns its panics into errors: the text is untrusted, and
// the parser is a third-party package.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("the file cannot be read as YAML")
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// cleanText returns the text without a byte order mark and without the carriage
// returns of line ends. If the bytes are not valid, it returns the first problem.
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

// maxTokens is a second limit of a file. The parser's time is proportional to the
// square of the number of keys in one map: half a second for this many tokens.
const maxTokens = 20000

// checkTokens reports unsupported syntax and too deep nesting before the parser builds
// a tree.
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
		if depth.add(tk) > MaxDepth+4 { // one level for the file, three levels for its format, and MaxDepth levels for a value
			refuse(tk, fmt.Sprintf("lists and maps are nested deeper than %d", MaxDepth), "")
			return problems
		}
		if len(problems) >= MaxProblems {
			return problems
		}
	}
	return problems
}

// depthMeter computes the nesting of collections from the tokens. Without this check,
// a file with a million brackets would make the parser recurse a million times.
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
			b.column = prev.Position.Column // the column of the key
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
		// Error would add an excerpt of the file, which takes minutes for a hostile
		// file.
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

// indentHint returns a hint if line n or the line below it has a wrong indentation. It
// returns "" if the indentation does not explain the error.
func (s *source) indentHint(n int) string {
	own, ok := s.indent(n)
	if !ok {
		return ""
	}
	open := -1 // the smallest indentation of the lines read so far, from line n upwards; deeper levels are closed
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
				break // line n begins a new level
			}
			return fmt.Sprintf("Line %d begins with %s, which matches no level above it. Is it indented too little?", n, spaces(own))
		}
		open = in
	}
	for below := n + 1; below <= len(s.lines); below++ {
		if in, ok := s.indent(below); ok {
			if in > own && strings.Contains(s.line(below), ":") {
				return fmt.Sprintf("Line %d begins with %s. Line %d begins with %d and already has a value. Is line %d indented too much?", below, spaces(in), n, own, below)
			}
			break
		}
	}
	return ""
}

// indent returns the number of spaces at the begin of line n. ok is false for a line
// without content.
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

// placeOf returns the place where a token begins. Some tokens of block texts have no
// column; they get column 1.
func placeOf(tk *token.Token) Place {
	if tk == nil || tk.Position == nil {
		return Place{Line: 1, Column: 1}
	}
	return Place{Line: max(1, tk.Position.Line), Column: max(1, tk.Position.Column)}
}

// node converts a parsed node and reports syntax without an equivalent in JSON.
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
				out.Place = f.Place // the parser returns the place of the colon
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
		f.Value.Place = f.Place // a missing value has no place
	}
	return f
}

// plain sets the value of a scalar without quotes by the core schema of YAML 1.2. The
// core schema is the schema of JSON with octal and hexadecimal integers. plain does
// not use the parser's value, because the parser does not know "1e3" and reads "1_000"
// as a number.
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
		report(fmt.Sprintf("%s is not a finite number", Quote(text)), "")
		return
	}
	if n, ok := radixInteger(text); ok {
		out.Value = n
		return
	}
	if numberPattern.MatchString(text) && strings.ContainsAny(text, "0123456789") {
		if len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0123456789") == "" {
			// The text is probably an account number. Read as a number, it would lose its zeros.
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

// dollars returns the places of "${" in a string that begins at p and takes about
// length bytes of the file. It does not find a "${" that is written as an escape, so
// the string may have more "${" than the result has places.
func (s *source) dollars(p Place, text string, length int) []Place {
	count := strings.Count(text, "${")
	if count == 0 || p.Line > len(s.lines) {
		return nil
	}
	line, column := p.Line, p.Column
	// Find the byte where the string begins.
	offset := s.lines[line-1]
	for i := 1; i < column && offset < len(s.text); i++ {
		_, size := utf8.DecodeRuneInString(s.text[offset:])
		offset += size
	}
	const header = 200 // bytes that may follow the | of a block text on its line
	end := min(len(s.text), offset+length+header)
	var places []Place
	for offset < end && len(places) < count {
		if strings.HasPrefix(s.text[offset:], "${") {
			places = append(places, Place{Line: line, Column: column})
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

package yamlnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"unicode/utf8"
)

// ReadJSON reads JSON into nodes, as Read reads YAML. JSON needs its own reader,
// because its rules for escapes and tabs differ from the rules of YAML, and programs
// send JSON. If the text repeats a field, the node holds all repetitions.
func ReadJSON(src []byte) (Node, []Problem) {
	r := &jsonReader{src: src, dec: json.NewDecoder(bytes.NewReader(src))}
	r.dec.UseNumber()
	for i, c := range src {
		if c == '\n' {
			r.lines = append(r.lines, i+1)
		}
	}
	if !utf8.Valid(src) {
		return Node{}, []Problem{{Line: 1, Column: 1, Code: "malformed-json", Message: "the text is not UTF-8"}}
	}
	root, problem := r.value(0)
	if problem == nil {
		if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
			problem = r.problem("there is data after the value")
		}
	}
	if problem != nil {
		return Node{}, []Problem{*problem}
	}
	return root, nil
}

type jsonReader struct {
	src   []byte
	lines []int // byte offsets of all lines except the first
	dec   *json.Decoder
}

// place returns the place where the next token begins.
func (r *jsonReader) place() Place {
	at := int(r.dec.InputOffset())
	for at < len(r.src) && bytes.IndexByte([]byte(" \t\r\n,:"), r.src[at]) >= 0 {
		at++
	}
	line := sort.SearchInts(r.lines, at+1)
	begin := 0
	if line > 0 {
		begin = r.lines[line-1]
	}
	return Place{Line: line + 1, Column: utf8.RuneCount(r.src[begin:at]) + 1}
}

func (r *jsonReader) problem(message string) *Problem {
	p := r.place()
	return &Problem{Line: p.Line, Column: p.Column, Code: "malformed-json", Message: message}
}

func (r *jsonReader) value(depth int) (Node, *Problem) {
	n := Node{Place: r.place()}
	if depth > MaxDepth+4 {
		return n, r.problem(fmt.Sprintf("lists and maps are nested deeper than %d", MaxDepth))
	}
	tok, err := r.dec.Token()
	if err != nil {
		return n, r.problem("the text is not JSON here")
	}
	switch tok := tok.(type) {
	case json.Number:
		if n.Value, err = CanonicalNumber(string(tok)); err != nil {
			return n, &Problem{Line: n.Line, Column: n.Column, Code: "malformed-json", Message: Printable(err.Error())}
		}
	case json.Delim:
		return r.collection(n, tok, depth)
	default: // nil, bool, string
		n.Value = tok
	}
	return n, nil
}

func (r *jsonReader) collection(n Node, open json.Delim, depth int) (Node, *Problem) {
	n.Shape = List
	if open == '{' {
		n.Shape = Map
	}
	for r.dec.More() {
		if n.Shape == List {
			item, problem := r.value(depth + 1)
			if problem != nil {
				return n, problem
			}
			n.Items = append(n.Items, item)
			continue
		}
		f := Field{Place: r.place()}
		key, err := r.dec.Token()
		if err != nil {
			return n, r.problem("the text is not JSON here")
		}
		f.Key, _ = key.(string) // the decoder accepts only strings as keys
		var problem *Problem
		if f.Value, problem = r.value(depth + 1); problem != nil {
			return n, problem
		}
		n.Fields = append(n.Fields, f)
	}
	if _, err := r.dec.Token(); err != nil {
		return n, r.problem("the text is not JSON here")
	}
	return n, nil
}

package appspec

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Withheld is what is known of a stored value that is not opened.
type Withheld struct {
	Type        Type   // as TypeOf returns it; "": not known
	Fingerprint string // equal for equal values of one place
	Size        int    // of its JSON, in bytes
	// Encrypted is the value as the customer's side encrypted it, for a reader that passes it on; "": the value is not
	// encrypted, or the reader does not need it.
	Encrypted string
}

// The types that only TypeOf returns.
const (
	null Type = "null"
	none Type = "none" // the elements of an empty list or map
)

// TypeOf returns the narrowest type of a JSON value, such as list(string). The type of an empty list is list(none).
func TypeOf(value any) Type { return typeOf(value, 0) }

func typeOf(value any, depth int) Type {
	if depth > maxTypeDepth+1 {
		return Any // no declared type looks deeper
	}
	elem := none
	switch value := value.(type) {
	case nil:
		return null
	case string, withheldText:
		return String
	case bool:
		return Bool
	case []any:
		for _, item := range value {
			elem = elem.join(typeOf(item, depth+1))
		}
		return List.of(elem)
	case map[string]any:
		for _, item := range value {
			elem = elem.join(typeOf(item, depth+1))
		}
		return Map.of(elem)
	case withheld:
		return value.Type
	}
	return Number
}

func (t Type) of(elem Type) Type {
	if elem == Any || elem == "" {
		return t
	}
	return t + "(" + elem + ")"
}

// join returns the narrowest type of the values of both types.
func (t Type) join(other Type) Type {
	outer, elem := t.outer()
	otherOuter, otherElem := other.outer()
	switch {
	case t == other || other == none:
		return t
	case t == none:
		return other
	case outer == otherOuter && (outer == List || outer == Map):
		return outer.of(elem.join(otherElem))
	}
	return Any
}

// accepts reports whether Check accepts the values of which TypeOf returns got. It accepts a type that is not known.
func (t Type) accepts(got Type) bool {
	if t == Any || got == none || got == "" {
		return true
	}
	outer, elem := t.outer()
	gotOuter, gotElem := got.outer()
	return outer == gotOuter && (elem == Any || elem.accepts(gotElem))
}

// describe returns the type for use in a message.
func (t Type) describe() string {
	outer, _ := t.outer()
	switch outer {
	case null:
		return yamlnode.Describe(nil)
	case "":
		return "a value"
	}
	return "a " + string(outer)
}

// scalar reports whether values of the type can be part of a text. It is true for a type that is not known.
func (t Type) scalar() bool {
	outer, _ := t.outer()
	return outer != List && outer != Map && outer != null
}

// below returns what is known of the value at a step of a path. ok is false if no value of the type has the step. Whether
// this value has it is not known.
func (w Withheld) below(step string) (_ Withheld, ok bool) {
	outer, elem := w.Type.outer()
	if elem == Any {
		elem = ""
	}
	switch outer {
	case List:
		n, err := strconv.Atoi(step)
		ok = err == nil && n >= 0 && elem != none
	case Map:
		ok = elem != none
	case "", Any:
		ok = true
	}
	return Withheld{Type: elem, Fingerprint: w.Fingerprint}, ok
}

// withheld is a leaf in place of the target of a reference.
type withheld struct {
	ref Reference
	Withheld
}

// withheldText is a leaf in place of a text. Each part is a string or a withheld.
type withheldText []any

// whole returns the text if no part of it is withheld.
func (t withheldText) whole() (string, bool) {
	if len(t) == 0 {
		return "", true
	}
	text, ok := t[0].(string)
	return text, ok && len(t) == 1
}

// appendText adds text to the last part.
func (t withheldText) appendText(text string) withheldText {
	if len(t) > 0 {
		if last, ok := t[len(t)-1].(string); ok {
			t[len(t)-1] = last + text
			return t
		}
	}
	return append(t, text)
}

// errWithheld reports that a value was needed that the scope does not open.
var errWithheld = errors.New("the value is not opened")

// isWithheld reports whether a resolved tree has a leaf in place of a value.
func isWithheld(tree any) bool {
	_, err := yamlnode.Transform(tree, func(leaf any) (any, error) {
		switch leaf.(type) {
		case withheld, withheldText:
			return nil, errWithheld
		}
		return leaf, nil
	})
	return errors.Is(err, errWithheld)
}

// Outline is what is known of a value of which no secret is opened.
type Outline struct {
	Value     any // nil if a part of it is withheld
	Withheld  bool
	Sensitive bool
	Type      Type   // as TypeOf returns it; "": not known
	Size      int    // of its JSON, in bytes. A part of a withheld list or map counts as nothing.
	Digest    string // equal for equal values
}

// Outline returns what is known of v in scope. Its errors are those of Resolve, except that a part of a withheld list or map
// that does not exist is no error.
//
// Digest is a digest without a key. In place of a withheld value it covers the reference and the fingerprint.
func (v Value) Outline(s Scope) (Outline, error) {
	tree, sensitive, err := v.resolve(s)
	if err != nil {
		return Outline{}, err
	}
	out := Outline{Sensitive: sensitive, Type: TypeOf(tree), Withheld: isWithheld(tree)}
	if !out.Withheld {
		out.Value = tree
	}
	if out.Size, err = sizeOf(tree); err != nil {
		return Outline{}, err
	}
	form, err := json.Marshal([]any{sensitive, formOf(tree)})
	if err != nil {
		return Outline{}, fmt.Errorf("encode a value for its digest: %w", err)
	}
	sum := sha256.Sum256(append([]byte("fairlead-outline-v1\n"), form...))
	out.Digest = base64.RawURLEncoding.EncodeToString(sum[:16])
	return out, nil
}

// EnvOutline returns the outline of the text that EnvText returns for the value. A withheld value is checked by its type.
func (o Outline) EnvOutline() (Outline, error) {
	if !o.Withheld {
		text, err := EnvText(o.Value)
		o.Value = text
		return o, err
	}
	if o.Type != null && !o.Type.scalar() {
		return o, errNoEnvText
	}
	return o, nil
}

// sizeOf returns the number of bytes of a resolved tree as JSON.
func sizeOf(tree any) (int, error) {
	size := 0
	shown, err := yamlnode.Transform(tree, func(leaf any) (any, error) {
		switch leaf := leaf.(type) {
		case withheld:
			size += leaf.Size - len("null")
			return nil, nil
		case withheldText:
			size += len(`""`) - len("null")
			for _, part := range leaf {
				switch part := part.(type) {
				case string:
					size += len(part)
				case withheld:
					size += part.Size
				}
			}
			return nil, nil
		}
		return leaf, nil
	})
	if err != nil {
		return 0, err
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err = enc.Encode(shown)
	return size + out.Len() - 1, err
}

// formOf returns a resolved tree in a form in which no two trees look the same.
func formOf(tree any) any {
	switch v := tree.(type) {
	case []any:
		form := []any{"list"}
		for _, item := range v {
			form = append(form, formOf(item))
		}
		return form
	case map[string]any:
		fields := make(map[string]any, len(v))
		for key, item := range v {
			fields[key] = formOf(item)
		}
		return []any{"map", fields}
	case withheld:
		return []any{"withheld", v.ref.String(), v.Fingerprint}
	case withheldText:
		form := []any{"text"}
		for _, part := range v {
			if w, ok := part.(withheld); ok {
				part = formOf(w)
			}
			form = append(form, part)
		}
		return form
	}
	return []any{"plain", tree}
}

// notAScalar returns the error of a reference in a text whose target cannot be a part of a text.
func notAScalar(ref Reference, what string) error {
	return &fairlead.Error{
		Kind: fairlead.KindInvalid, Code: fairlead.CodeNotAScalar,
		Message: fmt.Sprintf("%s is %s, which cannot be part of a text", ref.show(), what),
		Hint:    "Write the reference as the whole value, and build the text in the module.",
	}
}

package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// Limits of labels, on an install and in a rule.
const (
	MaxLabels   = 16
	MaxLabelLen = 63 // bytes of a key or a value: the limit of Kubernetes, to which labels are passed
)

// The regular expressions of labels: of a key, of a value, and of a value in a rule.
const (
	KeyPattern   = `^[A-Za-z][A-Za-z0-9._-]{0,62}$`
	ValuePattern = `^[A-Za-z0-9._-]{0,63}$`
	// Two * must not be adjacent.
	AskedPattern = `^(\*?[A-Za-z0-9._-])*\*?$`
)

var (
	keyForm   = pattern.New(KeyPattern)
	valueForm = pattern.New(ValuePattern)
	askedForm = pattern.New(AskedPattern)
)

// Label is a key and its value.
type Label struct{ Key, Value string }

// Labels are labels in the order of their keys, each key once, as LabelsOf returns
// them. Labels is a slice and not a map for speed: the placement of one install reads
// the labels of every rule of its org. In JSON, Labels is an object.
type Labels []Label

// LabelsOf returns the labels of a map; nil for none.
func LabelsOf(m map[string]string) Labels {
	var ls Labels
	for key, value := range m {
		ls = append(ls, Label{key, value})
	}
	slices.SortFunc(ls, func(a, b Label) int { return cmp.Compare(a.Key, b.Key) })
	return ls
}

// Map returns the labels as a map that the caller owns.
func (ls Labels) Map() map[string]string {
	m := make(map[string]string, len(ls))
	for _, l := range ls {
		m[l.Key] = l.Value
	}
	return m
}

// MarshalJSON writes an object.
func (ls Labels) MarshalJSON() ([]byte, error) { return json.Marshal(ls.Map()) }

// UnmarshalJSON reads an object.
func (ls *Labels) UnmarshalJSON(data []byte) error {
	var m map[string]string
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	*ls = LabelsOf(m)
	return nil
}

// Check returns an error of fairlead.KindInvalid if these cannot be the labels of an
// install.
func (ls Labels) Check() error {
	if len(ls) > MaxLabels {
		return fairlead.Invalid(fairlead.CodeInvalidLabel, "there are %d labels, %d are allowed", len(ls), MaxLabels)
	}
	for i, l := range ls {
		if !keyForm.MatchString(l.Key) || !valueForm.MatchString(l.Value) {
			return &fairlead.Error{
				Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidLabel, Message: fmt.Sprintf("%s is not a valid label", shown(l.Key+"="+l.Value)),
				Hint: "A label's key is 1 to 63 letters, digits, dots, hyphens and underscores, and begins with a letter; its value is up to 63 of them.",
			}
		}
		if i > 0 && ls[i-1].Key >= l.Key {
			return fairlead.Invalid(fairlead.CodeInvalidLabel, "the label %s is repeated or out of order", l.Key)
		}
	}
	return nil
}

// checkPatterns is Check for the labels of a rule.
func (ls Labels) checkPatterns() error {
	plain := slices.Clone(ls)
	for i, l := range ls {
		plain[i].Value = strings.ReplaceAll(l.Value, "*", "")
		if len(l.Value) > MaxLabelLen || valueForm.MatchString(plain[i].Value) && !askedForm.MatchString(l.Value) {
			return &fairlead.Error{
				Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidMatch, Message: fmt.Sprintf("%[2]s is not a valid pattern for the label %[1]s", shown(l.Key), shown(l.Value)),
				Hint: fmt.Sprintf("A pattern has at most %d characters. One * matches any characters; do not write two in a row.", MaxLabelLen),
			}
		}
	}
	return plain.Check()
}

// mismatch returns the index of the first pattern in ls whose label is missing or does
// not match. It returns -1 if all patterns match. has reports whether the label exists;
// value is the value of the label.
func (ls Labels) mismatch(labels Labels) (pattern int, value string, has bool) {
	i := 0
	for p := range ls {
		// A comparison with != is faster than with <: most unequal strings differ in
		// length.
		at := i
		for at < len(labels) && labels[at].Key != ls[p].Key {
			at++
		}
		if at == len(labels) {
			return p, "", false
		}
		i = at
		if !glob(ls[p].Value, labels[i].Value) {
			return p, labels[i].Value, true
		}
		i++
	}
	return -1, "", false
}

// glob reports whether text matches pattern, in which * matches any text. It compares
// single bytes because both strings are short and there are many: with functions of
// package strings, glob took half of the time of a placement.
func glob(pattern, text string) bool {
	p, t := 0, 0
	star, from := -1, 0 // the last * so far, and the end of the text that it matches
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			if p == len(pattern)-1 {
				return true
			}
			star, from = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star < 0:
			return false
		default:
			// It is enough to extend the match of the last *. The part of the pattern
			// before the last * matches at its first occurrence, and this leaves the most
			// text for the part after the last *.
			from++
			p, t = star+1, from
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Limits of labels, on an install and in a rule.
const (
	MaxLabels   = 16
	MaxLabelLen = 63 // of a key and of a value, in bytes: Kubernetes' limit, where labels end up
)

// The regular expressions of labels: of a key, of a value, and of a value that a
// rule asks for.
const (
	KeyPattern   = `^[A-Za-z][A-Za-z0-9._-]{0,62}$`
	ValuePattern = `^[A-Za-z0-9._-]{0,63}$`
	// No * follows another.
	AskedPattern = `^(\*?[A-Za-z0-9._-])*\*?$`
)

var (
	keyForm   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(KeyPattern) })
	valueForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(ValuePattern) })
	askedForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(AskedPattern) })
)

// Label is a key and its value.
type Label struct{ Key, Value string }

// Labels are labels in the order of their keys, each key once: what LabelsOf
// makes. A list and not a map, because placing one install goes through the
// labels of every rule of its org. In JSON they are an object.
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

// Check reports why these cannot be the labels of an install. The error is of
// fairlead.KindInvalid.
func (ls Labels) Check() error {
	if len(ls) > MaxLabels {
		return fairlead.Invalid(fairlead.CodeInvalidLabel, "there are %d labels, %d are allowed", len(ls), MaxLabels)
	}
	for i, l := range ls {
		if !keyForm().MatchString(l.Key) || !valueForm().MatchString(l.Value) {
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
		if len(l.Value) > MaxLabelLen || valueForm().MatchString(plain[i].Value) && !askedForm().MatchString(l.Value) {
			return &fairlead.Error{
				Kind: fairlead.KindInvalid, Code: fairlead.CodeInvalidMatch, Message: fmt.Sprintf("the label %s cannot be matched with %s", shown(l.Key), shown(l.Value)),
				Hint: "One * stands for any run of characters.",
			}
		}
	}
	return plain.Check()
}

// mismatch returns the first of the patterns ls that the labels do not have or
// do not match, and -1 if there is none.
func (ls Labels) mismatch(labels Labels) (pattern int, value string, has bool) {
	i := 0
	for p := range ls {
		// Not by <: unequal strings mostly differ in length, which is seen
		// at once.
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

// glob reports whether text is pattern with each * replaced by some text. Byte by
// byte, because both are short and there are many: functions of package strings
// took half of a placement.
func glob(pattern, text string) bool {
	p, t := 0, 0
	star, from := -1, 0 // the last * that was met, and where in text its run begins
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
			// Only the last * need give way: what stands before it is found
			// where it first occurs, which leaves most to what is behind.
			from++
			p, t = star+1, from
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

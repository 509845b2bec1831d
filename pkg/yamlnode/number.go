package yamlnode

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/pattern"
)

// Numbers stay decimal text from the file to the tool, because a conversion to
// float64 would change large identifiers. Terraform computes with 512 bits of
// mantissa, which hold 154 digits. The limits prevent a number such as "1e999999999"
// from becoming a gigabyte of zeros.
const (
	maxDigits   = 150
	maxExponent = 400
)

var numberPattern = pattern.New(`^([-+]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]{1,9}))?$`)

// CanonicalNumber returns the canonical spelling of a decimal number: without leading
// or trailing zeros and without a plus sign. The spelling has an exponent only if it
// would be longer with zeros. CanonicalNumber returns an error for more than 150 digits
// or an exponent beyond 400.
func CanonicalNumber(text string) (json.Number, error) {
	m := numberPattern.FindStringSubmatch(text)
	if m == nil || m[2]+m[3] == "" {
		return "", fmt.Errorf("%s is not a number", Quote(text))
	}
	exponent := 0
	if m[4] != "" {
		exponent, _ = strconv.Atoi(m[4]) // the pattern permits at most nine digits
	}
	// The value is 0.<digits> * 10^point.
	digits := m[2] + m[3]
	point := len(m[2]) + exponent
	trimmed := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(trimmed)
	digits = strings.TrimRight(trimmed, "0")
	if digits == "" {
		return "0", nil
	}
	if len(digits) > maxDigits || point > maxExponent || point < -maxExponent {
		return "", fmt.Errorf("the number %s has more than %d digits or an exponent beyond %d", Quote(text), maxDigits, maxExponent)
	}
	sign := strings.TrimPrefix(m[1], "+")
	switch {
	case point >= len(digits) && point <= 40:
		return json.Number(sign + digits + strings.Repeat("0", point-len(digits))), nil
	case point > 0 && point < len(digits):
		return json.Number(sign + digits[:point] + "." + digits[point:]), nil
	case point <= 0 && point > -6:
		return json.Number(sign + "0." + strings.Repeat("0", -point) + digits), nil
	case len(digits) == 1:
		return json.Number(fmt.Sprintf("%s%se%d", sign, digits, point-1)), nil
	default:
		return json.Number(fmt.Sprintf("%s%s.%se%d", sign, digits[:1], digits[1:], point-1)), nil
	}
}

// Normalize returns a deep copy of the JSON value v. The copy consists of nil, bool,
// string, []any, map[string]any and, for numbers, json.Number in canonical spelling.
func Normalize(v any) (any, error) {
	return Transform(v, func(leaf any) (any, error) {
		switch leaf := leaf.(type) {
		case nil, bool, string:
			return leaf, nil
		case json.Number:
			return CanonicalNumber(string(leaf))
		case float64:
			return CanonicalNumber(strconv.FormatFloat(leaf, 'g', -1, 64))
		case int, int64, uint64:
			return CanonicalNumber(fmt.Sprint(leaf))
		case []string:
			list := make([]any, len(leaf))
			for i, item := range leaf {
				list[i] = item
			}
			return list, nil
		}
		return nil, fmt.Errorf("a %T is not a JSON value", leaf)
	})
}

// Transform returns a copy of v in which leaf has replaced each leaf. A leaf is a
// value that is neither []any nor map[string]any. Keys of maps are visited in order,
// so that the first error is always the same. A depth beyond MaxDepth is an error.
func Transform(v any, leaf func(any) (any, error)) (any, error) { return transformAt(v, leaf, 0) }

func transformAt(v any, leaf func(any) (any, error), depth int) (_ any, err error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("lists and maps are nested deeper than %d", MaxDepth)
	}
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			if list[i], err = transformAt(item, leaf, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		fields := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if fields[key], err = transformAt(v[key], leaf, depth+1); err != nil {
				return nil, err
			}
		}
		return fields, nil
	}
	return leaf(v)
}

// radixInteger reads the hexadecimal and octal integers of YAML 1.2.
func radixInteger(text string) (json.Number, bool) {
	base := 0
	switch {
	case strings.HasPrefix(text, "0x"):
		base = 16
	case strings.HasPrefix(text, "0o"):
		base = 8
	default:
		return "", false
	}
	if len(text) > 2+maxDigits/2 || strings.ContainsAny(text, "+-_") {
		return "", false
	}
	n, ok := new(big.Int).SetString(text[2:], base)
	if !ok {
		return "", false
	}
	number, err := CanonicalNumber(n.String())
	return number, err == nil
}

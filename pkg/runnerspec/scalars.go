package runnerspec

import (
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"
)

// Masked replaces each secret in a configuration that is shown. In an update, Masked means: keep the secret.
const Masked = "(masked)"

// Secret is a value that is never shown. Formatting a Secret writes Masked. The JSON of a Secret is the value itself, so
// use the JSON for sealed storage only.
type Secret string

// Format writes Masked for every verb, and nothing for an empty secret.
func (s Secret) Format(f fmt.State, _ rune) {
	if s != "" {
		_, _ = io.WriteString(f, Masked) // a formatter cannot report an error
	}
}

// Duration is a time in Go's notation, such as "1h30m".
type Duration time.Duration

// String returns Go's notation.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes Go's notation.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a positive duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v <= 0 {
		return fmt.Errorf("wants a time such as 30s, 20m or 1h30m")
	}
	*d = Duration(v)
	return nil
}

// CPU is processing power in thousandths of one CPU.
type CPU int64

// String returns whole CPUs as "2" and others as "500m".
func (c CPU) String() string {
	if c%1000 == 0 {
		return fmt.Sprint(int64(c / 1000))
	}
	return fmt.Sprintf("%dm", int64(c))
}

// MarshalText writes the value as String does.
func (c CPU) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads "2", "0.5" and "500m".
func (c *CPU) UnmarshalText(text []byte) error {
	number, milli := strings.CutSuffix(string(text), "m")
	scale := int64(1000)
	if milli {
		scale = 1
	}
	v, err := scaled(number, scale)
	if err != nil {
		return fmt.Errorf("wants CPUs such as 2, 0.5 or 500m")
	}
	*c = CPU(v)
	return nil
}

// Size is a number of bytes.
type Size int64

// Mebibytes returns the size in units of 1,048,576 bytes, rounded down.
func (s Size) Mebibytes() int64 { return int64(s) >> 20 }

func binaryUnits() []string { return []string{"Ki", "Mi", "Gi", "Ti"} }

func decimalUnits() []string { return []string{"k", "M", "G", "T"} }

// String returns the size in the largest binary unit in which it is a whole number, otherwise in bytes.
func (s Size) String() string {
	unit, n := "", int64(s)
	for _, u := range binaryUnits() {
		if n == 0 || n%1024 != 0 {
			break
		}
		unit, n = u, n/1024
	}
	return fmt.Sprint(n) + unit
}

// MarshalText writes the size as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the notation of Kubernetes, "512Mi" or "2G". It also accepts a B at the end and a space before
// the unit: "42 MB" is 42,000,000 bytes.
func (s *Size) UnmarshalText(text []byte) error {
	number := strings.TrimRight(string(text), "KkMGTiB")
	unit := strings.TrimSuffix(string(text)[len(number):], "B")
	if unit == "K" {
		unit = "k"
	}
	scale := int64(1)
	ok := unit == ""
	for i := range binaryUnits() {
		for _, c := range []struct {
			unit  string
			scale int64
		}{{binaryUnits()[i], 1 << (10 * (i + 1))}, {decimalUnits()[i], pow1000(i + 1)}} {
			if unit == c.unit {
				scale, ok = c.scale, true
			}
		}
	}
	v, err := scaled(strings.TrimRight(number, " "), scale)
	if err != nil || !ok {
		return fmt.Errorf("wants a size such as 512Mi, 2Gi or 2GB")
	}
	*s = Size(v)
	return nil
}

func pow1000(n int) int64 {
	v := int64(1)
	for range n {
		v *= 1000
	}
	return v
}

// scaled returns a positive decimal times scale. The product must be whole and below 2^62.
func scaled(number string, scale int64) (int64, error) {
	if number == "" || len(number) > 20 || strings.Trim(number, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is not a positive decimal", number)
	}
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is not a decimal", number)
	}
	v.Mul(v, new(big.Rat).SetInt64(scale))
	if !v.IsInt() || v.Sign() <= 0 || v.Num().BitLen() > 62 {
		return 0, fmt.Errorf("%q is out of range", number)
	}
	return v.Num().Int64(), nil
}

// Object is a part of a configuration whose fields another program defines.
type Object map[string]any

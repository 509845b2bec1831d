package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is an amount of memory or disk in bytes. It is written as in 512Mi,
// 2Gi, 42 MB or 1073741824; 0 and nothing mean that none is given.
type Bytes int64

// UnmarshalText reads an amount.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "" {
		*b = 0
		return nil
	}
	end := strings.LastIndexAny(s, "0123456789.") + 1
	unit := strings.TrimSuffix(strings.TrimSpace(s[end:]), "B")
	factor, ok := map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}[unit]
	n, err := strconv.ParseFloat(s[:end], 64)
	if !ok || err != nil || n < 0 || n*factor > math.MaxInt64/2 {
		return fmt.Errorf("%q is no amount of bytes such as 512Mi or 2Gi", s)
	}
	*b = Bytes(n * factor)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (b Bytes) MarshalText() ([]byte, error) {
	switch {
	case b == 0:
		return nil, nil
	case b%(1<<20) == 0:
		return []byte(strconv.FormatInt(int64(b>>20), 10) + "Mi"), nil
	}
	return []byte(strconv.FormatInt(int64(b), 10)), nil
}

// MilliCPU is an amount of CPU in thousandths. It is written as in 2, 0.5 or
// 500m; 0 and nothing mean that none is given.
type MilliCPU int64

// UnmarshalText reads an amount.
func (c *MilliCPU) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "" {
		*c = 0
		return nil
	}
	number, factor := s, 1000.0
	if m, ok := strings.CutSuffix(s, "m"); ok {
		number, factor = m, 1
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || n*factor > 1e6 {
		return fmt.Errorf("%q is no amount of CPU such as 2, 0.5 or 500m", s)
	}
	*c = MilliCPU(math.Round(n * factor))
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (c MilliCPU) MarshalText() ([]byte, error) {
	if c == 0 {
		return nil, nil
	}
	return []byte(strconv.FormatInt(int64(c), 10) + "m"), nil
}

package dockerfile

import "strings"

// expand replaces the variables of a part and removes its quotes. ok is false if it has a form that this package does not
// read.
func expand(part string, env map[string]string) (text string, ok bool) {
	var out strings.Builder
	var quote byte
	for i := 0; i < len(part); {
		c := part[i]
		switch {
		case quote == 0 && (c == '"' || c == '\''), c == quote:
			if quote == 0 {
				quote = c
			} else {
				quote = 0
			}
			i++
		case c == '\\' && quote != '\'':
			return "", false
		case c == '$' && quote != '\'':
			value, next, ok := variable(part, i+1, env)
			if !ok {
				return "", false
			}
			out.WriteString(value)
			i = next
		default:
			out.WriteByte(c)
			i++
		}
	}
	return out.String(), quote == 0
}

// variable returns the value of the variable after a dollar, and the index after it.
func variable(part string, at int, env map[string]string) (value string, next int, ok bool) {
	if at < len(part) && part[at] == '{' {
		end := closing(part, at+1)
		if end < 0 {
			return "", 0, false
		}
		value, ok := braced(part[at+1:end], env)
		return value, end + 1, ok
	}
	end := at + nameLen(part[at:])
	if end == at {
		return "", 0, false
	}
	return env[part[at:end]], end, true
}

// closing returns the index of the brace that ends an expression; -1: there is none.
func closing(part string, at int) int {
	for open := 0; at < len(part); at++ {
		switch part[at] {
		case '{':
			open++
		case '}':
			if open == 0 {
				return at
			}
			open--
		}
	}
	return -1
}

// braced returns the value of NAME, NAME-TEXT, NAME:-TEXT, NAME+TEXT or NAME:+TEXT.
func braced(expression string, env map[string]string) (value string, ok bool) {
	n := nameLen(expression)
	name, rest := expression[:n], expression[n:]
	value, set := env[name]
	if n == 0 || rest == "" {
		return value, n > 0
	}
	rest, colon := strings.CutPrefix(rest, ":")
	there := set && (!colon || value != "")
	switch {
	case strings.HasPrefix(rest, "-") && there, strings.HasPrefix(rest, "+") && !there:
		if rest[0] == '+' {
			value = ""
		}
		return value, true
	case strings.HasPrefix(rest, "-"), strings.HasPrefix(rest, "+"):
		return expand(rest[1:], env)
	}
	return "", false
}

func nameLen(text string) int {
	n := 0
	for n < len(text) && (text[n] == '_' || text[n] >= 'a' && text[n] <= 'z' || text[n] >= 'A' && text[n] <= 'Z' || n > 0 && text[n] >= '0' && text[n] <= '9') {
		n++
	}
	return n
}

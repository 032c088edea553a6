package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
)

// The adaptation tells nobody which plugins it has. Its log does, in the same words from 0.8 to 0.12.
var (
	joined = regexp.MustCompile(`^plugin "(.*)" connected and synchronized$`)
	left   = regexp.MustCompile(`^(?:connection to plugin "(.*)" closed|closing plugin ([^,]*), )`)
)

// roster is the set of plugins that the adaptation calls.
type roster struct {
	mu  sync.Mutex
	all []string
}

func (r *roster) note(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := joined.FindStringSubmatch(line); m != nil {
		r.all = append(r.all, m[1])
	} else if m := left.FindStringSubmatch(line); m != nil {
		if i := slices.Index(r.all, m[1]+m[2]); i >= 0 {
			r.all = slices.Delete(r.all, i, i+1)
		}
	}
}

func (r *roster) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.all...)
}

// journal hands the adaptation's log to the test as events.
type journal struct{ side *side }

func (j *journal) write(level, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	j.side.known.note(line)
	j.side.emit(map[string]any{"event": "log", "level": level, "message": line})
}

func (j *journal) Debugf(_ context.Context, format string, args ...any) {
	j.write("debug", format, args...)
}
func (j *journal) Infof(_ context.Context, format string, args ...any) {
	j.write("info", format, args...)
}
func (j *journal) Warnf(_ context.Context, format string, args ...any) {
	j.write("warn", format, args...)
}
func (j *journal) Errorf(_ context.Context, format string, args ...any) {
	j.write("error", format, args...)
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// block is a command of a page and its output: a comment with flags of this program, and all text up to the comment
// that ends it.
var block = regexp.MustCompile(`(?s)(<!-- bench (-[^\n]*?) -->\n).*?(<!-- end of bench -->)`)

// writePage runs the command of each block of a Markdown page and replaces the block's text with the output. Blocks
// without the text only in their command keep their text. A command that fails leaves its block unchanged.
func writePage(file, only string, run func(args []string, out *bytes.Buffer) error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	blocks := block.FindAllSubmatchIndex(text, -1)
	if blocks == nil {
		return fmt.Errorf("%s has no line <!-- bench FLAGS -->", file)
	}
	var errs []error
	var page bytes.Buffer
	end := 0
	for _, b := range blocks {
		page.Write(text[end:b[3]])
		end = b[6]
		command := string(text[b[4]:b[5]])
		if !strings.Contains(command, only) {
			page.Write(text[b[3]:end])
			continue
		}
		var out bytes.Buffer
		if err := run(strings.Fields(command), &out); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", command, err))
			page.Write(text[b[3]:end])
			continue
		}
		fmt.Fprintf(&page, "\n%s\n\n", bytes.TrimSpace(out.Bytes()))
	}
	page.Write(text[end:])
	errs = append(errs, os.WriteFile(file, page.Bytes(), 0o644)) //nolint:gosec // a page of the repository
	return errors.Join(errs...)
}

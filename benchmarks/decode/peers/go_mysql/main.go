// Decodes journals with go-mysql and prints what it found in the last one, and the CPU time of that.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"github.com/go-mysql-org/go-mysql/replication"
)

type found struct {
	Changes int     `json:"changes"`
	Images  int     `json:"images"`
	Cells   int     `json:"cells"`
	Nulls   int     `json:"nulls"`
	Seconds float64 `json:"cpu_s"`
}

func (f *found) count(event *replication.BinlogEvent) error {
	rows, isRows := event.Event.(*replication.RowsEvent)
	if !isRows {
		return nil
	}
	changes := len(rows.Rows)
	if event.Header.EventType == replication.UPDATE_ROWS_EVENTv2 {
		changes /= 2
	}
	f.Changes += changes
	f.Images += len(rows.Rows)
	for _, row := range rows.Rows {
		f.Cells += len(row)
		for _, value := range row {
			if value == nil {
				f.Nulls++
			}
		}
	}
	return nil
}

// cpuSeconds is the process's CPU clock, all threads: the garbage collector is in it.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	var last found
	for _, journal := range os.Args[1:] {
		last = found{}
		begin := cpuSeconds()
		if err := replication.NewBinlogParser().ParseFile(journal, 0, last.count); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		last.Seconds = cpuSeconds() - begin
	}
	if err := json.NewEncoder(os.Stdout).Encode(last); err != nil {
		panic(err)
	}
}

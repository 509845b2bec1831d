# Writes 40 lines, some 70 ms apart. Each line contains its time in nanoseconds since
# 1970. A step sends its log every 100 ms, so the lines are spread over the time between
# two sends.

resource "terraform_data" "ticks" {
  provisioner "local-exec" {
    command = "i=0; while [ $i -lt 40 ]; do date +tick=%s%N; sleep 0.07; i=$((i+1)); done"
  }
}

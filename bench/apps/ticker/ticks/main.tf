# Writes 40 lines, each with its time in nanoseconds since 1970. They are some 70 ms
# apart, while a log is sent every 100 ms. So they are spread over the time between two
# sends.

resource "terraform_data" "ticks" {
  provisioner "local-exec" {
    command = "i=0; while [ $i -lt 40 ]; do date +tick=%s%N; sleep 0.07; i=$((i+1)); done"
  }
}
